"""A binding from its plan to its end: the executor writes, sweep and recovery follow up, and `rules` decide."""
