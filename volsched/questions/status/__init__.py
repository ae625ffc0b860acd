"""The state of a store at a glance: storage by class and zone, pods that wait and why, work in flight, leases."""
