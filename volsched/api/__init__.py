"""HTTP: a Kubernetes-style API for kubectl and the official clients, health and metrics.

Everything that needs no socket is in small pure modules (paths, selectors, patches, tables, statuses);
`kubernetes` combines them per request, `app` per process. Nothing below this layer knows HTTP.
"""
