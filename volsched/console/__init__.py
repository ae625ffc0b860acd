"""The console: pages that show where volumes are, at any moment, and why. Its sources are in `web/`."""
