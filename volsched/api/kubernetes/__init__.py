"""The Kubernetes-style API: objects under the paths, forms and error messages of Kubernetes."""
