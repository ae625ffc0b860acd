"""Recovery drills: the system stepped from a seed, history decided again, recovery rehearsed, and reports.

Only the command line stands above this package. Nothing here runs unless somebody asks for a drill by name.
"""
