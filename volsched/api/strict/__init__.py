"""Our own API as strict as a real API server, and as unreliable as its network: for testing clients of one."""
