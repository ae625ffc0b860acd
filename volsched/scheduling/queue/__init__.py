"""The scheduling queue: which pod is decided next, and what wakes one that found no node.

Pure: time and events are given. `queue` holds the pools, `changes` says what an event is, `hints` whom it helps.
"""
