"""The small controllers people take for granted, and repairs of known sores."""
