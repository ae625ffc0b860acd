"""An index in memory that makes a decision cost microseconds: it narrows the question, the rules answer it.

A pure fold: fed with effective objects, it holds no truth of its own. It imports `core` and what stands below.
"""

from volsched.scheduling.index.index import Index

__all__ = ["Index"]
