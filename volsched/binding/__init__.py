"""A binding from its plan to its end: the executor that writes, the sweep and recovery; `rules` decide."""
