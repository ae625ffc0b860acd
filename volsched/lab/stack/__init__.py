"""The stack as processes of this machine: what runs, who watches over it, and a handle for people and drills.

Nothing below knows of it. It starts the program's own commands as an operator would, and looks at them from
outside.
"""
