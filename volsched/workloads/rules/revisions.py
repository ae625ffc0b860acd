"""ControllerRevisions: a StatefulSet's former and present templates, which identify the version of its pods.

A revision depends on the set alone (name, number and data are Kubernetes' own), so two controllers create the same
one, and `kubectl rollout history` and `undo` work. A reused template gets its old revision with a new number.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from volsched.kube.manifest import Manifest, annotations, metadata, spec, status
from volsched.workloads.rules.ownership import controlled_by

REVISION = "ControllerRevision"
REVISION_LABEL = "controller-revision-hash"
"""On a pod: the name of the revision that it was created from."""
HASH_LABEL = "controller.kubernetes.io/hash"
DEFAULT_HISTORY = 10
LONGEST_PREFIX = 223
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193
_REPLACE = {"$patch": "replace"}

Taken = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Revision:
    name: str
    template: Manifest


@dataclass(frozen=True, slots=True)
class SetRevisions:
    current: Revision
    """The revision of pods below the partition, until every pod has the new one."""
    update: Revision
    collisions: int = 0
    create: dict[str, Any] | None = None
    """A new revision, for a template that the set has not had before."""
    renumbered: dict[str, Any] | None = None
    """An existing revision with a new number, for a reused template."""

    def of(self, pod: Manifest) -> str:
        """The name of the pod's revision. A pod older than revisions counts as current, so it is not replaced."""
        labels = metadata(pod).get("labels") or {}
        return str(labels.get(REVISION_LABEL) or self.current.name)


def set_revisions(stateful_set: Manifest, known: Iterable[Manifest], taken: Taken) -> SetRevisions:
    """The set's revisions. `known`: its existing ones; `taken`: whether another owner's revision has a name."""
    history = sorted(known, key=_number)
    template = _template(stateful_set)
    collisions = int(status(stateful_set).get("collisionCount") or 0)
    number = _number(history[-1]) + 1 if history else 1
    create: dict[str, Any] | None = None
    renumbered: dict[str, Any] | None = None
    alike = [revision for revision in history if _template(revision.get("data", {})) == template]
    if alike and alike[-1] is history[-1]:
        name = _name(alike[-1])
    elif alike:
        name = _name(alike[-1])
        renumbered = {**alike[-1], "revision": number}
    else:
        names = {_name(revision) for revision in history}
        create = _new_revision(stateful_set, number, collisions)
        while _name(create) in names or taken(_name(create)):
            collisions += 1
            create = _new_revision(stateful_set, number, collisions)
        name = _name(create)
    update = Revision(name, template)
    before = status(stateful_set).get("currentRevision")
    current = next(
        (
            Revision(_name(revision), _template(revision["data"]))
            for revision in history
            if _name(revision) == before
        ),
        update,
    )
    return SetRevisions(current, update, collisions, create, renumbered)


def outdated(
    stateful_set: Manifest, known: Iterable[Manifest], revisions: SetRevisions, pods: Iterable[Manifest]
) -> list[str]:
    """Names of revisions beyond the limit, the oldest first; those in use by a pod or the set are kept."""
    live = {revisions.current.name, revisions.update.name, *(revisions.of(pod) for pod in pods)}
    history = [_name(it) for it in sorted(known, key=_number) if _name(it) not in live]
    given = spec(stateful_set).get("revisionHistoryLimit")
    limit = DEFAULT_HISTORY if given is None else int(given)
    return [] if limit < 0 else history[: max(len(history) - limit, 0)]


def revision_hash(data: Manifest, collisions: int) -> str:
    """The hash as kube-controller-manager computes it: FNV-1 of the data and the count, in its safe alphabet."""
    sum_ = _FNV_OFFSET
    for byte in orjson.dumps(data, option=orjson.OPT_SORT_KEYS) + str(collisions).encode():
        sum_ = (sum_ * _FNV_PRIME) % 2**32 ^ byte
    return "".join(_LETTERS[ord(digit) % len(_LETTERS)] for digit in str(sum_))


def _new_revision(stateful_set: Manifest, number: int, collisions: int) -> dict[str, Any]:
    template = _template(stateful_set)
    data = {"spec": {"template": {**template, **_REPLACE}}}
    digest, named = revision_hash(data, collisions), metadata(stateful_set)
    metadata_: dict[str, Any] = {
        "name": f"{named['name'][:LONGEST_PREFIX]}-{digest}",
        "namespace": named.get("namespace", ""),
        "labels": {**(metadata(template).get("labels") or {}), HASH_LABEL: digest},
        "ownerReferences": [controlled_by(stateful_set)],
    }
    if annotations(stateful_set):
        metadata_["annotations"] = annotations(stateful_set)
    return {"apiVersion": "apps/v1", "kind": REVISION, "metadata": metadata_, "data": data, "revision": number}


def _template(holder: Manifest) -> dict[str, Any]:
    found = spec(holder).get("template")
    return {key: value for key, value in found.items() if key != "$patch"} if isinstance(found, dict) else {}


def _name(revision: Manifest) -> str:
    return str(metadata(revision).get("name", ""))


def _number(revision: Manifest) -> int:
    return int(revision.get("revision") or 0)
