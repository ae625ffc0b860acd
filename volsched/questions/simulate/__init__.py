"""Simulation: changes tried on a copy in memory."""
