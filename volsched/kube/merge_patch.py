"""JSON merge patches (RFC 7386): how an object event says exactly what changed.

A patch cannot hold a null as a value, since null removes; nulls are stripped where manifests enter.
"""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def merged(target: Json, patch: Json) -> dict[str, Any]:
    """The target with the patch applied. Neither is changed; what can be shared is not copied."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            below = result.get(key)
            result[key] = merged(below, value) if isinstance(below, dict) else without_nulls(value)
        else:
            result[key] = value
    return result


def without_nulls(patch: Json) -> Json:
    """What the patch makes of nothing. It is the patch itself unless it holds a null, and mostly it does not."""
    for value in patch.values():
        if value is None or (isinstance(value, dict) and without_nulls(value) is not value):
            return merged({}, patch)
    return patch


def difference(old: Json, new: Json) -> dict[str, Any]:
    """The smallest patch that turns old into new; empty where they are equal."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if before is value and value is not None:
            # Most of what is written anew is shared with what was there.
            continue
        if isinstance(value, dict) and isinstance(before, dict):
            below = difference(before, value)
            if below:
                patch[key] = below
        elif before != value or key not in old or type(before) is not type(value):
            patch[key] = value
    return patch
