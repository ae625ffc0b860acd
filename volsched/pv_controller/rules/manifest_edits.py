"""Small changes of manifests. The given one stays as it is; every field that nobody names is kept."""

from collections.abc import Iterable, Mapping
from typing import Any

from volsched.pv_controller.rules.requests import Manifest

Changed = dict[str, Any]


def with_spec(manifest: Manifest, **fields: Any) -> Changed:
    """None removes a field, here and below: a stored manifest holds no nulls."""
    return _within(manifest, "spec", fields)


def with_status(manifest: Manifest, **fields: Any) -> Changed:
    return _within(manifest, "status", fields)


def with_annotations(
    manifest: Manifest, *, drop: Iterable[str] = (), add: Mapping[str, str] | None = None
) -> Changed:
    held: Mapping[str, str] = manifest["metadata"].get("annotations") or {}
    dropped = frozenset(drop)
    kept = {key: value for key, value in held.items() if key not in dropped} | dict(add or {})
    return _within(manifest, "metadata", {"annotations": kept or None})


def with_finalizers(manifest: Manifest, finalizers: Iterable[str]) -> Changed:
    return _within(manifest, "metadata", {"finalizers": list(finalizers) or None})


def _within(manifest: Manifest, part: str, fields: Mapping[str, Any]) -> Changed:
    below = {**(manifest.get(part) or {}), **fields}
    return {**manifest, part: {key: value for key, value in below.items() if value is not None}}
