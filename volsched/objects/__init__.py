"""The single entry point for writes of objects: creation, change and deletion, decided by `rules`."""
