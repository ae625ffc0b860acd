"""The history of an object: events as text, causes, times, a volume's claims, differences between two times."""
