"""The strict field check: finds fields that a kind does not have, and values that a field cannot hold.

An object keeps fields that the rules do not read, so no other check would detect a misspelt one. Fields that an
object already has are accepted: a newer program may have written them.
"""

from collections.abc import Mapping
from typing import Any

from volsched.kube.kinds import Kind
from volsched.kube.known_fields import unknown_field_hints, unknown_field_text, unknown_fields, wrong_types
from volsched.objects.rules.object_events import ObjectError

Manifest = Mapping[str, Any]
MOST_NAMED = 20


class UndecodableError(ObjectError):
    """The manifest does not decode as its kind; the message is Kubernetes' own."""

    code = 400

    def __init__(self, kind: Kind, why: str) -> None:
        version = kind.api_version.rpartition("/")[2]
        super().__init__(f'{kind.name} in version "{version}" cannot be handled as a {kind.name}: {why}')


def wrong_type(kind: Kind, manifest: Manifest, before: Manifest | None = None) -> str | None:
    """The first field with a value of the wrong type, unless the object had it before."""
    wrong = wrong_types(kind, manifest)
    known = set(wrong_types(kind, before)) if wrong and before else set()
    return next((it for it in wrong if it not in known), None)


def new_unknown_fields(kind: Kind, manifest: Manifest, before: Manifest | None = None) -> list[str]:
    """Unknown fields as warning messages, without those that the object already has."""
    unknown = unknown_fields(kind, manifest)
    known = set(unknown_fields(kind, before)) if unknown and before else set()
    return [f'unknown field "{field}"' for field in unknown if field not in known]


def strict_error(unknown: list[str]) -> str:
    return f"strict decoding error: {', '.join(unknown[:MOST_NAMED])}"


def field_faults(kind: Kind, manifest: Manifest, before: Manifest | None = None) -> list[str]:
    """All errors that the check finds in an object; for an unknown field with the one that was probably meant."""
    wrong = wrong_type(kind, manifest, before)
    known = set(unknown_fields(kind, before)) if before else set()
    hints = unknown_field_hints(kind, manifest)
    unknown = [unknown_field_text(field, meant) for field, meant in hints.items() if field not in known]
    return [*(() if wrong is None else (wrong,)), *unknown]


def refuse_fields(kind: Kind, manifest: Manifest, before: Manifest | None = None) -> None:
    """Raises the errors of `field_faults`; a value that cannot be decoded is reported alone."""
    refuse_types(kind, manifest, before)
    if unknown := field_faults(kind, manifest, before):
        raise UndecodableError(kind, strict_error(unknown))


def refuse_types(kind: Kind, manifest: Manifest, before: Manifest | None = None) -> None:
    why = wrong_type(kind, manifest, before)
    if why is not None:
        raise UndecodableError(kind, why)
