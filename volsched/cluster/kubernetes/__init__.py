"""A real API server behind the port: raw manifests over HTTP, without a Kubernetes client library.

Pure: `kubeconfig`, `requests`, `responses`, `backoff`, `watch_lines`. Around them: `credentials`, `transport`,
`lists`, `streams`, and the `adapter` that is the cluster. Needs the extra `cluster`.
"""
