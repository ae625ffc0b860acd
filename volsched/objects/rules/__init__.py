"""The rules of the object store: life cycle, admission, apply, adoption, Kubernetes events."""
