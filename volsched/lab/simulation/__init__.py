"""The whole system in one thread, played from a seed on simulated time, with faults."""
