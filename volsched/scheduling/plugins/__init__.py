"""The constraints of a pod other than its volumes, each a plugin with the reference's answers and reasons.

A plugin reads the snapshot once per pod and then answers for nodes (`plugin`). Plugins know nothing of each other,
of volumes or of profiles; `rules.cycle` calls them in the order that `registry` gives.
"""
