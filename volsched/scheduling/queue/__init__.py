"""The scheduling queue: which pod is decided next, and what wakes one that found no node.

Pure: time and events are arguments. `queue` holds the pools, `object_changes` the aspects, `hints` the hints.
"""
