"""The write door: how objects are created, changed and deleted; `rules` decide."""
