"""The small controllers that Kubernetes users expect, and repairs of known defects."""
