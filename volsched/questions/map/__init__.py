"""Where volumes, claims and pods are at any moment, and the log over time: what the console draws."""
