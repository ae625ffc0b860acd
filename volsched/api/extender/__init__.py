"""The scheduler extender: kube-scheduler asks, volsched's rules answer, and bind plans a binding as any other.

`messages` is what goes over the wire, `desk` decides, `service` is the HTTP of it.
"""
