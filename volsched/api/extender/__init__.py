"""The scheduler extender: kube-scheduler asks, volsched's rules answer, and bind plans a binding as any other.

`messages` is the wire format, `decider` decides, `service` serves HTTP.
"""
