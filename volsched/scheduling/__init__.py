"""The scheduler: what it sees, how it decides and plans; `rules`, `plugins`, `queue` and `index` are pure."""
