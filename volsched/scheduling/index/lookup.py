"""A mapping to look things up in that are never walked over: what is walked is chosen by the index."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

V = TypeVar("V")


class Lookup(Mapping[str, V]):
    """Finds by key whatever the other mapping has, and lists nothing."""

    def __init__(self, everything: Mapping[str, V]) -> None:
        self._everything = everything
        # Not by way of `__getitem__`, as a mapping would: rules look things up by the dozen.
        self._get = everything.get

    def __getitem__(self, key: str) -> V:
        return self._everything[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self._get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Chosen(Lookup[V]):
    """The same, but that it lists the chosen keys."""

    def __init__(self, everything: Mapping[str, V], keys: Collection[str]) -> None:
        super().__init__(everything)
        self._keys = keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
