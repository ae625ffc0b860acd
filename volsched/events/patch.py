"""JSON merge patches (RFC 7386): how an object event says exactly what changed.

A patch cannot hold a null as a value, since null removes; nulls are stripped where manifests enter.
"""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def merged(target: Json, patch: Json) -> dict[str, Any]:
    """The target with the patch applied. Neither is changed; untouched parts are shared, not copied."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            below = result.get(key)
            result[key] = merged(below if isinstance(below, dict) else {}, value)
        else:
            result[key] = value
    return result


def difference(old: Json, new: Json) -> dict[str, Any]:
    """The smallest patch that turns old into new; empty where they are equal."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            below = difference(before, value)
            if below:
                patch[key] = below
        elif before != value or key not in old or type(before) is not type(value):
            patch[key] = value
    return patch
