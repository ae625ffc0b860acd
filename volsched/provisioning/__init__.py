"""Provisioners: the built-in ones that the PV controller calls, and an external one.

`protocol` is what the controller requires of a provisioner; nothing here knows the controller.
"""
