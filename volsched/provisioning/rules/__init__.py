"""The contract of an external provisioner, as pure rules: when to act, where, and what follows.

It imports `core` and `model`. Whoever provisions from outside needs nothing but what is here and a driver.
"""
