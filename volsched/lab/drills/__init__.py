"""Recovery drills: the system stepped from a seed, history decided again, recovery rehearsed, and reports.

Only the command line uses this package. Nothing here runs unless a user starts a drill by name.
"""
