"""The timeline of an object: events as text, causes, moments, volume history, differences."""
