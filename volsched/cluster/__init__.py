"""Access to the cluster that decisions are carried out on: one small port, one adapter per kind of cluster.

Everything here is about single objects and their versions; `binding.rules` decides the writes.
"""
