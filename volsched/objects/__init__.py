"""The write door: objects are created, changed and deleted here; `rules` decide."""
