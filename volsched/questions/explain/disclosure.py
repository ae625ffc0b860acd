"""What of an explanation is told to somebody who may see some namespaces only: nothing of the objects in others.

A remedy that needs somebody else's object is left out whole, and counted; where else such an object is named, its
name is withheld. What is looked at is the finished answer, so that no text can be forgotten.
"""

import re
from collections.abc import Callable, Collection
from typing import Any

WITHHELD = "an object in another namespace"
_KEY = re.compile(r"(?<![\w.-])([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)/([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)")

Told = dict[str, Any]


def disclosed(told: Told, hidden: Collection[str]) -> Told:
    """The explanation without what is in these namespaces."""
    if not hidden:
        return told
    names = frozenset(hidden)
    cut = {name: _cut_remedies(value, names) for name, value in told.items()}
    kept, withheld = _kept(told.get("remedies", []), names)
    if "remedies" in told:
        cut["remedies"] = kept
    if withheld:
        cut["remediesWithheld"] = withheld
    return {name: _withheld(value, names) for name, value in cut.items()}


def _cut_remedies(value: Any, hidden: frozenset[str]) -> Any:
    """Of a part that has remedies of its own."""
    if not isinstance(value, dict) or "remedies" not in value:
        return value
    return {**value, "remedies": _kept(value["remedies"], hidden)[0]}


def _kept(remedies: list[Any], hidden: frozenset[str]) -> tuple[list[Any], int]:
    """Those that name nothing of these namespaces, and how many do."""
    kept: list[Any] = []
    for remedy in remedies:
        elsewhere = remedy.get("elsewhere", []) if isinstance(remedy, dict) else []
        own = {**remedy, "elsewhere": []} if isinstance(remedy, dict) else remedy
        if not _names(own, hidden):
            seen = [it for it in elsewhere if not _names(it, hidden)]
            kept.append({**remedy, "elsewhere": seen} if isinstance(remedy, dict) else remedy)
    return kept, len(remedies) - len(kept)


def _names(value: Any, hidden: frozenset[str]) -> bool:
    return bool(_withheld(value, hidden) != value)


def _withheld(value: Any, hidden: frozenset[str]) -> Any:
    if isinstance(value, str):
        return _KEY.sub(_replacement(hidden), value) if "/" in value else value
    if isinstance(value, dict):
        return {key: _withheld(item, hidden) for key, item in value.items()}
    return [_withheld(item, hidden) for item in value] if isinstance(value, list | tuple) else value


def _replacement(hidden: frozenset[str]) -> Callable[["re.Match[str]"], str]:
    return lambda found: WITHHELD if found[1] in hidden else found[0]
