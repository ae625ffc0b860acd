"""The history of an object: events as text, causes, times, whom a volume served, differences between two times."""
