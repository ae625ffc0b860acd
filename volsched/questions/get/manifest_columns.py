"""Columns read from documents: effects and reservations are not objects of the log."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from volsched.questions.get.documents import age, list_text, value_text
from volsched.questions.get.object_rows import ObjectRow
from volsched.runtime.clock import parse_rfc3339

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ManifestColumn:
    header: str
    value: Callable[[Manifest, int], str]
    """The cell for a document and the time that ages are counted to."""
    wide: bool = False


def manifest_row(columns: Sequence[ManifestColumn], manifest: dict[str, Any], *, now: int) -> ObjectRow:
    head = manifest["metadata"]
    return ObjectRow(
        head["name"],
        head["name"],
        head.get("namespace", ""),
        lambda: [column.value(manifest, now) for column in columns],
        lambda: manifest,
    )


def field_of(part: str, name: str) -> Callable[[Manifest, int], str]:
    return lambda manifest, _: value_text(manifest.get(part, {}).get(name))


def _age(manifest: Manifest, now: int) -> str:
    created = manifest["metadata"].get("creationTimestamp")
    return age(None if created is None else parse_rfc3339(created), now)


def _volumes(manifest: Manifest, _: int) -> str:
    legs = manifest["status"].get("claims", ())
    return list_text(f"{it['claim'].rpartition('/')[2]}→{it.get('volume') or '?'}:{it['state']}" for it in legs)


MANIFEST_NAME = ManifestColumn("NAME", field_of("metadata", "name"))
MANIFEST_AGE = ManifestColumn("AGE", _age)
MANIFEST_VOLUMES = ManifestColumn("VOLUMES", _volumes, wide=True)
