"""Where volumes, claims and pods are at any time, and how the log grew: what the console draws."""
