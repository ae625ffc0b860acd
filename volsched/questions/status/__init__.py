"""The status of a store: storage by class and zone, waiting pods with reasons, work in flight, leases."""
