"""Validation of objects at creation and update, with Kubernetes' checks, order and messages.

One function per kind and verb, pure over manifests whose fields have the right types. It is the only validation:
the reader of files, HTTP, the library and controllers use it. Clients act on these texts and people search for
them, so they match the reference to the letter.
"""
