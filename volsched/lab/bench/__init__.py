"""Benchmarks: the cost of our own work, as ratios to a baseline measured in the same run."""
