"""Golden vectors of the reference, from a compressed file beside the tests."""

import gzip
from pathlib import Path

from volsched.lab.conformance.vectors import Vector, read_vectors


def vectors_by_category(file: Path) -> dict[str, list[Vector]]:
    by_category: dict[str, list[Vector]] = {}
    with gzip.open(file) as lines:
        for vector in read_vectors(lines):
            by_category.setdefault(vector.category, []).append(vector)
    return by_category
