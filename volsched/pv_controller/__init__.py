"""The PV controller's loop, and the long operations that it starts."""
