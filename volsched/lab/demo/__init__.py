"""`volsched demo`: scenes that really run, on their own store, and check each of their statements.

The stage is the store with the processes on it; scenes act on it, and the command line only prints.
"""
