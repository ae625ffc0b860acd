"""How long history is kept: archive, redaction, expiry, export, backup and restore."""
