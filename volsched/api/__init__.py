"""HTTP: a Kubernetes-style API that kubectl and the official clients can use, health and metrics.

What can be said without a socket is said in small pure modules (paths, selectors, patches, tables, statuses);
`kubernetes` puts them together per request, `app` per process. Nothing below this layer knows of HTTP.
"""
