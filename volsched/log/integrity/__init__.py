"""Integrity of a store: verification, rebuilding of views, replay."""
