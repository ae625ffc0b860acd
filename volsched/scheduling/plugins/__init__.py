"""The constraints of a pod other than its volumes, each a plugin with the reference's answers and reasons.

A plugin looks at the snapshot once per pod and then answers for nodes (`plugin`). They know nothing of each other,
of volumes or of profiles; `core.cycle` asks them in the order that `registry` gives.
"""
