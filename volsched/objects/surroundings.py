"""Reads the objects that the admission chain needs beyond the written one, for every caller.

These are nodes for a volume's zone labels, the lives of the claim that a volume names by uid, the class of a
changed claim, and the classes among which a new claim finds the default. Most writes need none of them, and then
the database is not queried.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from volsched.kube.manifest import spec
from volsched.kube.workloads import Node
from volsched.log.batch import load_states
from volsched.log.database import Database
from volsched.log.events.fold import manifest_of
from volsched.log.events.streams import NOUN_OF_KIND, stream_of
from volsched.log.reads.event_audit import lives
from volsched.log.reads.lookups import page
from volsched.log.reads.startup import load_classes, load_nodes
from volsched.objects.rules.admission import (
    CLAIM,
    NO_CONTEXT,
    AdmissionContext,
    claim_uid,
    class_of_claim,
    lacks_class,
)
from volsched.workloads.rules.disruption_budgets import BUDGET
from volsched.workloads.rules.repairs import asks_for_nodes

Manifest = Mapping[str, Any]


class Subject(NamedTuple):
    """An object to be written."""

    kind: str
    key: str
    manifest: Manifest | None
    """The object as it is to be created; None: it is only changed."""
    changes: bool = False
    """Whether the object may exist already and is changed in that case."""


def has_surroundings(subject: Subject, *, zonal_upgrade: bool) -> bool:
    """Whether anything must be read. Mostly not, and then the caller need not wait for a thread."""
    if subject.changes and subject.kind == CLAIM:
        return True
    manifest = subject.manifest
    return manifest is not None and (
        lacks_class(subject.kind, manifest)
        or bool(claim_uid(subject.kind, manifest))
        or (zonal_upgrade and asks_for_nodes(subject.kind, manifest))
    )


def read_surroundings(
    database: Database, subjects: Sequence[Subject], *, zonal_upgrade: bool, more_nodes: Collection[Node] = ()
) -> list[AdmissionContext]:
    """The admission context of each object. `more_nodes` come with the objects and count as existing."""
    if not any(has_surroundings(it, zonal_upgrade=zonal_upgrade) for it in subjects):
        return [NO_CONTEXT] * len(subjects)
    with database.read() as connection:
        asks = zonal_upgrade and any(asks_for_nodes(it.kind, it.manifest or {}) for it in subjects)
        nodes = [*load_nodes(connection), *more_nodes] if asks else None
        classes = _classes(database, connection, subjects)
        asks_class = any(lacks_class(it.kind, it.manifest or {}) for it in subjects)
        all_classes = load_classes(connection) if asks_class else ()
        return [
            AdmissionContext(
                nodes=nodes if asks_for_nodes(it.kind, it.manifest or {}) else None,
                claim_known=_is_claim_known(connection, it),
                storage_class=classes.get(it.key) if it.kind == CLAIM else None,
                classes=all_classes if lacks_class(it.kind, it.manifest or {}) else (),
            )
            for it in subjects
        ]


def read_budgets(database: Database, namespace: str) -> tuple[str, ...]:
    """The PodDisruptionBudgets that may forbid an eviction, as streams."""
    with database.read() as connection:
        found = page(connection, NOUN_OF_KIND[BUDGET], namespace=namespace)
    return tuple(stream_of(BUDGET, key) for key, _ in found)


def _is_claim_known(connection: Connection, subject: Subject) -> bool:
    """Whether the claim that a volume names exists or once existed: a provisioner whose claim was deleted
    meanwhile must still be able to save its volume, or the storage behind it would never be deleted."""
    manifest = subject.manifest or {}
    uid = claim_uid(subject.kind, manifest)
    if uid is None:
        return True
    ref = spec(manifest)["claimRef"]
    stream = stream_of(CLAIM, f"{ref.get('namespace')}/{ref.get('name')}")
    return any(life.uid == uid for life in lives(connection, stream))


def _classes(database: Database, connection: Connection, subjects: Sequence[Subject]) -> dict[str, Manifest]:
    """Claim → its class, for claims that exist already."""
    keys = [it.key for it in subjects if it.kind == CLAIM and it.changes]
    if not keys:
        return {}
    claims, _ = load_states(database, connection, [stream_of(CLAIM, key) for key in keys])
    names = {
        key: stream_of("StorageClass", class_of_claim(claim))
        for key in keys
        if (claim := manifest_of(claims, stream_of(CLAIM, key))) is not None
    }
    classes, _ = load_states(database, connection, list(dict.fromkeys(names.values())))
    return dict(_existing_manifests(names, classes))


def _existing_manifests(names: Mapping[str, str], classes: Mapping[str, Any]) -> Iterator[tuple[str, Manifest]]:
    for key, stream in names.items():
        manifest = manifest_of(classes, stream)
        if manifest is not None:
            yield key, manifest
