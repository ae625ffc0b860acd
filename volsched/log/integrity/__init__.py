"""Is the store what it says it is: verification, rebuilding of views, replay."""
