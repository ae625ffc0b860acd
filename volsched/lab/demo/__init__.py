"""`volsched demo`: a story that really runs, on a store of its own, and checks each of its claims.

The stage is the store and what works on it, the scenes are what happens there; the command line only prints.
"""
