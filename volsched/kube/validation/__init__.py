"""What the API refuses at creation and update, in Kubernetes' order and words.

One function per kind and verb, pure over manifests. Clients act on these texts and people search for them, so they
match the reference to the letter; `kube.manifest_checks` reports a file's defects with their places and remedies.
"""
