"""Reads manifests: every object of an input, defaulted, parsed and checked, or all problems of the input.

There is no partial result. One wrong object refuses the whole input, and the error lists all defects of all
objects, so that a user repairs a file once and not once per defect.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from volsched.kube.defaults import with_defaults
from volsched.kube.display_text import counted
from volsched.kube.documents import helm_release, null_items, read_documents
from volsched.kube.kinds import KINDS, Kind, Manifest
from volsched.kube.known_fields import unknown_field_hints, unknown_field_text, wrong_types
from volsched.kube.object_values import Object
from volsched.kube.problems import Defect, ManifestError, Place, Problem, value_text
from volsched.kube.shapes import NOT_A_LIST, read_shape
from volsched.kube.validation.field_errors import FieldError
from volsched.kube.validation.rules import creation_errors
from volsched.kube.yaml_values import dump_yaml

_LIST = "List"
_LIST_API = "v1"
_TYPED_LISTS = {f"{name}{_LIST}": kind for name, kind in KINDS.items()}

KINDS_SHOWN = 5
TOLD_EVERY = 100
"""Objects between two calls of `progress`."""
SLIP = 0.85
"""The least similarity, up to 1, at which a word counts as a misspelt kind."""
_KNOWN = ", ".join(KINDS)
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
    """An object of a known kind, or the value found in its place."""

    place: Place
    raw: Any
    kind: Kind | None = None
    defects: tuple[Defect, ...] = ()

    def problems(self, defects: Iterable[Defect | FieldError]) -> Iterator[Problem]:
        return (Problem(self.place, _subject(self.raw), defect) for defect in defects)


class UnknownFields(Enum):
    """The objects for which a refusal lists unknown fields."""

    UNREPORTED = auto()
    OF_REFUSED = auto()
    OF_ALL = auto()


@dataclass(frozen=True, slots=True)
class _Judged:
    """A candidate with all its defects."""

    candidate: _Candidate
    manifest: Manifest
    defects: Sequence[Defect | FieldError]

    def problems(self, unknown: UnknownFields) -> Iterator[Problem]:
        """Unknown fields come first: the other defects mostly follow from them."""
        kind = self.candidate.kind
        told = unknown is UnknownFields.OF_ALL or (unknown is UnknownFields.OF_REFUSED and self.defects)
        hints = unknown_field_hints(kind, self.manifest) if kind and told else {}
        fields = [Defect((), unknown_field_text(field, meant)) for field, meant in hints.items()]
        return self.candidate.problems([*fields, *self.defects])


@dataclass(slots=True)
class Skipped:
    """The parts of a cluster dump that are skipped, because they are no objects that we know."""

    in_directory: bool = False
    """Files of a directory need not be manifests at all."""
    kinds: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    strays: list[str] = field(default_factory=list)
    """Inputs without objects."""

    def __str__(self) -> str:
        """A one-line summary; empty where nothing was skipped."""
        # A list of a foreign kind may be empty.
        kinds = +self.kinds
        most = [f"{count} {kind}" for kind, count in kinds.most_common(KINDS_SHOWN)]
        more = [] if len(kinds) <= KINDS_SHOWN else [f"{len(kinds) - KINDS_SHOWN} kinds more"]
        foreign, strays = kinds.total(), len(self.strays)
        parts = [
            f"{counted(foreign, 'object')} of kinds that volsched does not know ({', '.join(most + more)})"
            if foreign
            else "",
            f"{self.repeated} that appear in the input twice" if self.repeated else "",
            f"{counted(strays, 'file')} without objects ({self.strays[0]}{', …' if self.strays[1:] else ''})"
            if self.strays
            else "",
        ]
        told = " and ".join(part for part in parts if part)
        return f"skipped {told}" if told else ""


def newest(loaded: Iterable[Loaded], skipped: Skipped) -> list[Loaded]:
    """Each object once. Dumps hold some twice, such as those of `kubectl get all,pods`: the later version counts.
    Two objects without a common uid were written by hand: both are returned, and the caller must report them.
    """
    places: dict[tuple[str, str], int] = {}
    kept: list[Loaded] = []
    for entry in loaded:
        place = places.setdefault((entry.kind.name, entry.key), len(kept))
        if place == len(kept) or not _is_same(kept[place], entry):
            kept.append(entry)
            continue
        skipped.repeated += 1
        if _version(entry) > _version(kept[place]):
            kept[place] = entry
    return kept


def _is_same(one: Loaded, other: Loaded) -> bool:
    """One uid, or equal in every field: Velero writes each object again under its preferred version."""
    uid = one.value.meta.uid
    return (bool(uid) and uid == other.value.meta.uid) or one.manifest == other.manifest


def _version(entry: Loaded) -> int:
    version = entry.value.meta.resource_version
    return int(version) if version.isdecimal() else 0


def load_manifests(
    data: bytes,
    *,
    source: str,
    namespace: str = "",
    skipped: Skipped | None = None,
    unknown: UnknownFields = UnknownFields.UNREPORTED,
    progress: Callable[[int, int], None] | None = None,
) -> list[Loaded]:
    """Every object of the input, in its order; raises ManifestError and nothing else.

    Objects without a namespace get `namespace`. `progress` is called with the numbers of objects read and in all.

    `skipped` collects documents that are no objects of ours; without it, they are errors. With it, the
    caller has to resolve objects that the input holds twice (`newest`).

    Unknown fields do not refuse an input here: writers of objects refuse them, readers warn. `unknown` says
    for which objects they are listed when the input is refused for another reason.
    """
    loaded: list[Loaded] = []
    judged: list[_Judged] = []
    first: dict[str, Place] = {}
    release = helm_release(data)
    candidates = [
        candidate
        for document in read_documents(release.manifest if release else data, source=source)
        for candidate in _candidates(document.value, Place(source, document.number), implied=None)
    ]
    for number, candidate in enumerate(candidates):
        if progress is not None and number % TOLD_EVERY == 0:
            progress(number, len(candidates))
        if skipped is not None and candidate.kind is None and _is_skipped(candidate, skipped):
            continue
        if candidate.kind is None:
            judged.append(_Judged(candidate, {}, candidate.defects))
            continue
        raw = _within(candidate, (release.namespace if release else "") or namespace)
        manifest, value, defects = read_manifest(candidate.kind, raw)
        # As for all writers, an object is checked only if it can be read.
        errors: list[Defect | FieldError] = [
            *candidate.defects,
            *(defects or creation_errors(candidate.kind, manifest)),
        ]
        if skipped is None:
            errors += _repeated(manifest, candidate.place, first)
        judged.append(_Judged(candidate, manifest, errors))
        if value is not None:
            loaded.append(Loaded(candidate.kind, manifest, value, candidate.place))
    if any(it.defects for it in judged):
        raise ManifestError([problem for it in judged for problem in it.problems(unknown)])
    return loaded


def _within(candidate: _Candidate, namespace: str) -> Any:
    """The object; in the namespace of its release if it names none."""
    meta = candidate.raw.get("metadata")
    if candidate.kind is None or not candidate.kind.namespaced or not namespace or not isinstance(meta, dict):
        return candidate.raw
    return {**candidate.raw, "metadata": {**meta, "namespace": meta.get("namespace") or namespace}}


def read_manifest(kind: Kind, raw: Manifest) -> tuple[dict[str, Any], Object | None, list[Defect]]:
    """The manifest with defaults, its value as far as it can be read, and every field of a wrong type."""
    manifest = with_defaults(kind, raw)
    nulls = dict.fromkeys(null_items(manifest))
    reading = read_shape(kind, manifest)
    defects = [
        *(Defect(path, _NULL_ITEM) for path in nulls),
        *(it for it in reading.defects if it.path not in nulls),
    ]
    # Also the types of fields that no value reads: templates, and fields that are only stored.
    return manifest, reading.value, defects or [Defect((), why) for why in wrong_types(kind, manifest)]


def dump_manifests(manifests: Iterable[Manifest]) -> str:
    """The manifests as one YAML document each; loading the text gives the same manifests again."""
    return dump_yaml(manifests)


# --- lists ----------------------------------------------------------------------------------------------


def _candidates(raw: Any, place: Place, *, implied: Kind | None) -> Iterator[_Candidate]:
    """The objects in a document or an item of a list; lists may hold lists."""
    if not isinstance(raw, dict):
        yield _Candidate(place, raw, None, (Defect((), _NOT_AN_OBJECT, value_text(raw)),))
        return
    if implied is not None:
        # The API omits both in the items of a list that names them itself.
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
        defects.append(Defect(("items",), NOT_A_LIST, value_text(items)))
        items = []
    yield _Candidate(place, raw, None, tuple(defects))
    for number, item in enumerate(items, start=1):
        inner = Place(place.source, place.document, (*place.items, number))
        yield from _candidates(item, inner, implied=implied)


# --- foreign objects ------------------------------------------------------------------------------------


def _is_skipped(candidate: _Candidate, skipped: Skipped) -> bool:
    """Notes an object of a foreign kind. A kind that is spelt nearly like one of ours is a typing error."""
    raw = candidate.raw
    version, name = (raw.get("apiVersion"), raw.get("kind")) if isinstance(raw, dict) else (None, None)
    if not isinstance(version, str) or not isinstance(name, str):
        stray = skipped.in_directory and not (isinstance(raw, dict) and "kind" in raw)
        if stray:
            skipped.strays.append(str(candidate.place))
        return stray
    if name == _LIST or name in _TYPED_LISTS:
        return False
    close = difflib.get_close_matches(name.lower(), [it.lower() for it in KINDS], 1, cutoff=SLIP)
    near = next((it for it in KINDS if close and it.lower() == close[0]), None)
    if near is not None and _group(KINDS[near].api_version) == _group(version):
        return False
    items = raw.get("items") if name.endswith(_LIST) else None
    if isinstance(items, list):
        skipped.kinds[name.removesuffix(_LIST)] += len(items)
    else:
        # A kind name that we use too is shown with its API group.
        skipped.kinds[f"{name}.{_group(version)}" if name in KINDS else name] += 1
    return True


def _group(version: str) -> str:
    return version.partition("/")[0] if "/" in version else ""


# --- kind and identity ----------------------------------------------------------------------------------


def _type_defects(raw: Manifest) -> Iterator[Defect]:
    name = raw.get("kind")
    if name is None:
        yield Defect(("kind",), "is required", aside=f"write one of {_KNOWN}")
    elif not isinstance(name, str) or name not in KINDS:
        close = difflib.get_close_matches(
            str(name)[:80].lower(), [known.lower() for known in KINDS], 1, cutoff=SLIP
        )
        meant = next((known for known in KINDS if close and known.lower() == close[0]), None)
        remedy = f"; did you mean {meant}?" if meant else ""
        message = f"is not a kind that volsched knows{remedy}"
        yield Defect(("kind",), message, value_text(name), aside=f"known are {_KNOWN}")
    else:
        yield from _version_defects(raw, KINDS[name].api_version)


def _version_defects(raw: Manifest, expected: str) -> Iterator[Defect]:
    version = raw.get("apiVersion")
    if version is None:
        yield Defect(("apiVersion",), f"is required; write {expected}")
    elif version != expected:
        yield Defect(("apiVersion",), f"is not the apiVersion of this kind; write {expected}", value_text(version))


def _subject(raw: Any) -> str:
    """The object's identity, as far as it is given: `Pod "shop/db-0"`."""
    if not isinstance(raw, dict):
        return ""
    kind, key = raw.get("kind"), _key(raw)
    words = [kind[:80] if isinstance(kind, str) and kind else "object", value_text(key) if key else ""]
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
    """A second object of one kind and key, with the place of the first; `first` remembers all places."""
    if not _key(manifest):
        return
    subject = f"{manifest['kind']} {_key(manifest)}"
    earlier = first.setdefault(subject, place)
    if earlier is not place:
        yield Defect(("metadata", "name"), f"is in the input twice, first at {earlier}; remove one of the two")
