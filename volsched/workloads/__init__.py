"""The small controllers that users take for granted, and repairs of known defects."""
