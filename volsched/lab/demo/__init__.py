"""`volsched demo`: a story that really runs, on its own store, and checks each of its claims.

The stage is the store and the processes on it, the scenes are what happens there; the command line only prints.
"""
