"""Benchmarks: what our own work costs, as ratios to a baseline measured in the same run."""
