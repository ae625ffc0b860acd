"""The strict field check: fields that a kind does not have, and values that a field cannot hold.

An object keeps the fields that the rules do not read, so nobody else would notice a misspelt one. What an object
has already is let be: a newer program may have written it.
"""

from collections.abc import Mapping
from typing import Any

from volsched.kube.kinds import Kind
from volsched.kube.known_fields import unknown_fields, wrong_types
from volsched.objects.rules.refusals import ObjectError

Manifest = Mapping[str, Any]
MOST_NAMED = 20


class UndecodableError(ObjectError):
    """The manifest is not one of its kind, in Kubernetes' words."""

    code = 400

    def __init__(self, kind: Kind, why: str) -> None:
        version = kind.api_version.rpartition("/")[2]
        super().__init__(f'{kind.name} in version "{version}" cannot be handled as a {kind.name}: {why}')


def wrong_type(kind: Kind, manifest: Manifest, before: Manifest | None = None) -> str | None:
    """The first field that holds what it cannot, unless it did before."""
    wrong = wrong_types(kind, manifest)
    known = wrong_types(kind, before) if wrong and before else []
    return next((it for it in wrong if it not in known), None)


def new_unknown_fields(kind: Kind, manifest: Manifest, before: Manifest | None = None) -> list[str]:
    """As sentences of a warning; fields that the object has already are left out."""
    unknown = unknown_fields(kind, manifest)
    known = set(unknown_fields(kind, before)) if unknown and before else set()
    return [f'unknown field "{field}"' for field in unknown if field not in known]


def strict_error(unknown: list[str]) -> str:
    return f"strict decoding error: {', '.join(unknown[:MOST_NAMED])}"


def field_faults(kind: Kind, manifest: Manifest) -> list[str]:
    """All that the check has against a new object."""
    wrong = wrong_type(kind, manifest)
    return [*(() if wrong is None else (wrong,)), *new_unknown_fields(kind, manifest)]


def refuse_fields(kind: Kind, manifest: Manifest, before: Manifest | None = None) -> None:
    why = wrong_type(kind, manifest, before)
    if why is None and (unknown := new_unknown_fields(kind, manifest, before)):
        why = strict_error(unknown)
    if why is not None:
        raise UndecodableError(kind, why)
