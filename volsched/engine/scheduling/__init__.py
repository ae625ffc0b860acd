"""The scheduler: what it sees, how it decides, plans and refuses."""
