"""Audit questions: decisions, latency, reads, orphans, leases, verification."""
