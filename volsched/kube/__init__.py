"""Kubernetes objects as values: manifests, quantities, selectors, defaults, validation and patches.

Nothing here knows a scheduling rule; every other room may import it.
"""
