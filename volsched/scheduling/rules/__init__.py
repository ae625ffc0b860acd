"""The rules of one scheduling attempt: claims, volumes, capacity, limits, scores."""
