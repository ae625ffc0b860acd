"""The scheduler: its cluster view, how it decides and plans; `rules`, `plugins`, `queue` and `index` are pure."""
