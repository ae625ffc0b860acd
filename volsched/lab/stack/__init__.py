"""The stack as processes of this machine: what runs, the supervisor, and a handle for users and drills.

No other package depends on it. It starts and observes the program's own commands as an operator would.
"""
