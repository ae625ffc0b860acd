"""Plain values: quantities, selectors, objects, and the manifests they are read from.

Nothing here knows a scheduling rule; every other layer may import it.
"""
