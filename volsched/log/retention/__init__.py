"""Retention of history: archive, redaction, expiry, export, backup and restore."""
