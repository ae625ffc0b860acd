"""The verbs of the lab: `drill`, `bench`, `demo`, `conform`, `stack`. The command line loads them by name."""
