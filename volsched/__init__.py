"""volsched: topology-aware volume scheduling whose every decision is kept, explained and replayable."""
