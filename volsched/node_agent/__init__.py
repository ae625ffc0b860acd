"""The node agent: a simulated kubelet for many nodes."""
