"""The contract of an external provisioner (behaviour 13), as pure rules: when to act, where, and what follows.

It imports `core` and `model`. Whoever provisions from outside needs nothing but what is here and a driver.
"""
