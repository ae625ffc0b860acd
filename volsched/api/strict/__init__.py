"""Our own API, made as strict as a real API server and as unreliable as its network: for testing clients."""
