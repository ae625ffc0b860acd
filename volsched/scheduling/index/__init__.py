"""An index in memory that makes a decision cost microseconds: it narrows the candidates, the rules decide.

A pure fold over effective objects; it is not a source of truth.
"""

from volsched.scheduling.index.index import Index

__all__ = ["Index"]
