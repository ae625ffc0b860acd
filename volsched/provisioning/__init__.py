"""Who makes storage: the built-in provisioners that the PV controller calls, and one that works from outside.

`protocol` is what the controller asks of a provisioner; nothing here knows the controller.
"""
