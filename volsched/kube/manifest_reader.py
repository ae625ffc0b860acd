"""Manifests in and out: every object of an input, defaulted, read and judged, or every problem it has.

There is no partial answer. One wrong object refuses the whole input, and the error names all that is wrong in
it, so that a user repairs a file once and not once per defect.
"""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from volsched.kube.defaults import with_defaults
from volsched.kube.documents import null_items, read_documents
from volsched.kube.kinds import KINDS, Kind, Manifest, Object
from volsched.kube.manifest_checks import validation_defects
from volsched.kube.problems import Defect, ManifestError, Place, Problem, shown
from volsched.kube.shapes import NOT_A_LIST, read_shape
from volsched.kube.yaml_dump import dump_yaml

_LIST = "List"
_LIST_API = "v1"
_TYPED_LISTS = {f"{name}{_LIST}": kind for name, kind in KINDS.items()}

_NULL_ITEM = "is null inside a list; remove the entry or write its value"
_NOT_AN_OBJECT = "is not an object; write a mapping with apiVersion, kind and metadata"


@dataclass(frozen=True, slots=True)
class Loaded:
    """One object of an input: its manifest with defaults, and the value read from it."""

    kind: Kind
    manifest: dict[str, Any]
    value: Object
    place: Place = field(compare=False)

    @property
    def key(self) -> str:
        return self.value.meta.key


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An object of a known kind, or what stands where one should."""

    place: Place
    raw: Any
    kind: Kind | None = None
    defects: tuple[Defect, ...] = ()

    def problems(self, defects: Iterable[Defect]) -> Iterator[Problem]:
        return (Problem(self.place, _subject(self.raw), defect) for defect in defects)


def load_manifests(data: bytes, *, source: str) -> list[Loaded]:
    """Every object of the input, in its order; raises ManifestError and nothing else."""
    loaded: list[Loaded] = []
    problems: list[Problem] = []
    first: dict[str, Place] = {}
    for document in read_documents(data, source=source):
        for candidate in _candidates(document.value, Place(source, document.number), implied=None):
            problems += candidate.problems(candidate.defects)
            if candidate.kind is None:
                continue
            manifest, value, defects = check_manifest(candidate.kind, candidate.raw)
            problems += candidate.problems(defects)
            problems += candidate.problems(_repeated(manifest, candidate.place, first))
            if value is not None:
                loaded.append(Loaded(candidate.kind, manifest, value, candidate.place))
    if problems:
        raise ManifestError(problems)
    return loaded


def check_manifest(kind: Kind, raw: Manifest) -> tuple[dict[str, Any], Object | None, list[Defect]]:
    """The manifest with defaults, its value as far as it can be read, and all that is wrong with it."""
    manifest = with_defaults(kind, raw)
    nulls = dict.fromkeys(null_items(manifest))
    reading = read_shape(kind, manifest)
    found = list(reading.defects)
    if reading.value is not None:
        found += reading.unexplained(validation_defects(kind, manifest, reading.value))
    defects = [Defect(path, _NULL_ITEM) for path in nulls]
    return manifest, reading.value, [*defects, *(defect for defect in found if defect.path not in nulls)]


def dump_manifests(manifests: Iterable[Manifest]) -> str:
    """The manifests as one YAML document each; loading the text gives the same manifests again."""
    return dump_yaml(manifests)


# --- lists ----------------------------------------------------------------------------------------------


def _candidates(raw: Any, place: Place, *, implied: Kind | None) -> Iterator[_Candidate]:
    """The objects that a document, or an item of a list, stands for; lists may hold lists."""
    if not isinstance(raw, dict):
        yield _Candidate(place, raw, None, (Defect((), _NOT_AN_OBJECT, shown(raw)),))
        return
    if implied is not None:
        # The API leaves both out of the items of a list that already says what they are.
        raw = {"apiVersion": implied.api_version, "kind": implied.name, **raw}
    name = raw.get("kind")
    if isinstance(name, str) and (name == _LIST or name in _TYPED_LISTS):
        yield from _list_candidates(raw, place, _TYPED_LISTS.get(name))
        return
    defects = tuple(_type_defects(raw))
    yield _Candidate(place, raw, None if defects else KINDS[str(name)], defects)


def _list_candidates(raw: dict[str, Any], place: Place, implied: Kind | None) -> Iterator[_Candidate]:
    defects = list(_version_defects(raw, implied.api_version if implied else _LIST_API))
    items = raw.get("items", [])
    if not isinstance(items, list):
        defects.append(Defect(("items",), NOT_A_LIST, shown(items)))
        items = []
    yield _Candidate(place, raw, None, tuple(defects))
    for number, item in enumerate(items, start=1):
        inner = Place(place.source, place.document, (*place.items, number))
        yield from _candidates(item, inner, implied=implied)


# --- which kind, which object ---------------------------------------------------------------------------


def _type_defects(raw: Manifest) -> Iterator[Defect]:
    name = raw.get("kind")
    if name is None:
        yield Defect(("kind",), f"is required; write one of {', '.join(KINDS)}")
    elif not isinstance(name, str) or name not in KINDS:
        close = difflib.get_close_matches(str(name)[:80].lower(), [known.lower() for known in KINDS], 1)
        meant = next((known for known in KINDS if close and known.lower() == close[0]), None)
        remedy = f"did you mean {meant}? known are" if meant else "known are"
        yield Defect(("kind",), f"is not a kind that volsched knows; {remedy} {', '.join(KINDS)}", shown(name))
    else:
        yield from _version_defects(raw, KINDS[name].api_version)


def _version_defects(raw: Manifest, expected: str) -> Iterator[Defect]:
    version = raw.get("apiVersion")
    if version is None:
        yield Defect(("apiVersion",), f"is required; write {expected}")
    elif version != expected:
        yield Defect(("apiVersion",), f"is not the apiVersion of this kind; write {expected}", shown(version))


def _subject(raw: Any) -> str:
    """The object as far as it says who it is: `Pod "shop/db-0"`."""
    if not isinstance(raw, dict):
        return ""
    kind, key = raw.get("kind"), _key(raw)
    words = [kind[:80] if isinstance(kind, str) and kind else "object", shown(key) if key else ""]
    return " ".join(word for word in words if word)


def _key(raw: Manifest) -> str:
    meta = raw.get("metadata")
    if not isinstance(meta, dict):
        return ""
    name, namespace = meta.get("name"), meta.get("namespace")
    if not isinstance(name, str) or not name:
        return ""
    return f"{namespace}/{name}" if isinstance(namespace, str) and namespace else name


def _repeated(manifest: Manifest, place: Place, first: dict[str, Place]) -> Iterator[Defect]:
    """A second object of one kind and key, with the place of the first; `first` remembers what was met."""
    if not _key(manifest):
        return
    subject = f"{manifest['kind']} {_key(manifest)}"
    earlier = first.setdefault(subject, place)
    if earlier is not place:
        yield Defect(("metadata", "name"), f"stands in the input twice, first at {earlier}; remove one of the two")
