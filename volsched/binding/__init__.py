"""A binding from its plan to its end: the executor writes, the sweep and recovery follow up; `rules` decide."""
