"""Conformance with Kubernetes: golden vectors, and live scenarios with the outcome of a real control plane."""
