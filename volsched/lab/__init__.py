"""Drills, simulation, benchmarks, conformance, the demo and a local stack. Nothing outside imports it."""
