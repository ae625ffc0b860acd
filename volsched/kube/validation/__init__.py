"""What the API refuses at creation and update, in Kubernetes' order and words.

One function per kind and verb, pure over manifests. Clients act on these texts and people search for them, so they
are the reference's to the letter; `kube.manifest_checks` beside says what is wrong with a file, where in it,
and what to do about it.
"""
