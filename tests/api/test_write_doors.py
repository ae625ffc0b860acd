"""The same manifest gets the same answer at every door: CLI, HTTP, library, and the port's local adapter.

The reasons are the same to the letter, but for what each door puts around them. One difference remains: a field of
a wrong type is reported by the reader of files with all others of the file and a remedy, and by the doors that get
an object as it is in the words of Kubernetes' decoder.
"""

import copy
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from tests.support.clusters import claim, node, pod, volume
from tests.support.fresh_stores import unsynced
from tests.support.serving import collection, served
from volsched.cli.app import app
from volsched.cluster.local import LocalCluster
from volsched.cluster.port import CallRefusedError as PortRefusedError
from volsched.kube.kinds import key_of
from volsched.kube.patches import merged
from volsched.kube.problems import ManifestError
from volsched.library import Engine, RefusedError
from volsched.log.commands import Command
from volsched.log.database import Database, open_database
from volsched.log.events.fold import Decision
from volsched.log.events.streams import stream_of
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.objects.object_write import Author
from volsched.objects.rules.object_events import deleted_event
from volsched.runtime.clock import system_clock
from volsched.runtime.system import local_cluster

Manifest = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
GIVEN_BY_STORE = ("uid", "creationTimestamp", "resourceVersion")
CLASS: Manifest = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fixed"},
    "provisioner": "x.io/p",
}
SET: Manifest = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "set", "namespace": "default"},
    "spec": {
        "serviceName": "set",
        "replicas": 1,
        "selector": {"matchLabels": {"app": "set"}},
        "template": {
            "metadata": {"labels": {"app": "set"}},
            "spec": {"containers": [{"name": "main", "image": "app:1"}]},
        },
    },
}


# --- manifests ------------------------------------------------------------------------------------------


def but(manifest: Manifest, patch: Mapping[str, Any]) -> Manifest:
    """The manifest with some fields as they should, or should not, be; None takes a field away."""
    return dict(merged(copy.deepcopy(manifest), patch))


def disk(patch: Mapping[str, Any]) -> Manifest:
    return but(volume("disk", "10Gi", "n1"), patch)


def data(patch: Mapping[str, Any]) -> Manifest:
    return but(claim("data", "1Gi"), patch)


def app_(patch: Mapping[str, Any]) -> Manifest:
    return but(pod("app"), patch)


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


def meta(**fields: Any) -> dict[str, Any]:
    return {"metadata": fields}


def ref(name: str, **fields: str) -> dict[str, Any]:
    return {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": "shop", "name": name, **fields}}


def nested(levels: int) -> dict[str, Any]:
    return {"below": nested(levels - 1)} if levels else {}


@dataclass(frozen=True)
class Case:
    manifest: Manifest
    reason: str | None = None
    """A part of why it is refused; None: it is accepted."""
    reader: bool = False
    """A value of a wrong type: the reader of files reports it in its own words."""
    holds: Mapping[str, Any] = field(default_factory=dict)
    """A merge patch that changes nothing of what is stored: a part of it."""
    before: Manifest | None = None
    """There already: the manifest changes it."""


CREATED = {
    "node": Case(node("plain")),
    "class": Case(but(CLASS, meta(name="new"))),
    "namespace": Case({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}}),
    "statefulset": Case(SET),
    "volume": Case(disk({})),
    "claim of a class that is not there": Case(data(spec(storageClassName="nowhere"))),
    "claim without a class": Case(data(spec(storageClassName=None))),
    "claim for one pod": Case(data(spec(accessModes=["ReadWriteOncePod"]))),
    "claim in another namespace": Case(data(meta(namespace="shop"))),
    "pod with a claim": Case(but(pod("app", "data"), {})),
    "pod with a gate": Case(app_(spec(schedulingGates=[{"name": "x.io/wait"}]))),
    "size as a number": Case(disk(spec(capacity={"storage": 1073741824}))),
    "status is dropped": Case(disk({"status": {"phase": "Bound"}}), holds={"status": {"phase": "Pending"}}),
    "finalizers are kept": Case(
        data(meta(finalizers=["x.io/mine"])),
        holds=meta(finalizers=["x.io/mine", "kubernetes.io/pvc-protection"]),
    ),
    "bookkeeping of another server is dropped": Case(
        data(meta(managedFields=[{"manager": "kubectl"}], selfLink="/x")), holds=meta(managedFields=None)
    ),
    "volume reserved by name": Case(disk(spec(**ref("any")))),
    "volume of a claim that lives": Case(disk(spec(**ref("known", uid="uid-known")))),
    "volume of a claim that lived": Case(disk(spec(**ref("lived", uid="uid-lived")))),
    "volume of an unknown claim": Case(
        disk(spec(**ref("known", uid="uid-other"))), "names a claim that this store has never seen"
    ),
    "zone label becomes an affinity": Case(
        disk({**meta(labels={ZONE: "a"}), **spec(nodeAffinity=None, local=None, hostPath={"path": "/disk"})}),
        holds=spec(
            nodeAffinity={
                "required": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]
                }
            }
        ),
    ),
    "zone label beside an affinity": Case(disk(meta(labels={ZONE: "a"}))),
    "priority of a class": Case(app_(spec(priorityClassName="high")), holds=spec(priority=1000)),
    "priority of the system": Case(
        app_(spec(priorityClassName="system-node-critical")), holds=spec(priority=2_000_001_000)
    ),
    "priority class that nobody defined": Case(
        app_(spec(priorityClassName="nope")), "no PriorityClass with name nope was found"
    ),
    "priority without a class": Case(
        app_(spec(priority=7)), "the integer value of priority (7) must not be provided"
    ),
    "namespace that is going": Case(data(meta(namespace="dying")), "because it is being terminated"),
    "unknown field": Case(app_(spec(frobs=1)), 'strict decoding error: unknown field "spec.frobs"'),
    "unknown field of metadata": Case(
        data(meta(lables={"a": "b"})), 'strict decoding error: unknown field "metadata.lables"'
    ),
    "unread field of a wrong type": Case(
        app_(spec(containers=[{"name": "main", "image": "app", "tty": "yes"}])), "cannot unmarshal string"
    ),
    "list that is a text": Case(app_(spec(containers="main")), "cannot unmarshal string", reader=True),
    "bad quantity": Case(disk(spec(capacity={"storage": "10Gib"})), "quantities must match", reader=True),
    "negative size": Case(data(spec(resources={"requests": {"storage": "-1Gi"}})), "greater than zero"),
    "no size": Case(data(spec(resources=None)), "spec.resources"),
    "no access modes": Case(data(spec(accessModes=[])), "spec.accessModes"),
    "one pod beside others": Case(
        data(spec(accessModes=["ReadWriteOncePod", "ReadWriteOnce"])), "spec.accessModes"
    ),
    "bad name": Case(disk(meta(name="Bad_Name")), "metadata.name"),
    "bad label": Case(data(meta(labels={"a": "not valid!"})), "metadata.labels"),
    "bad operator of a selector": Case(
        disk(
            spec(
                nodeAffinity={
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Is"}]}]}
                }
            )
        ),
        "operator",
    ),
    "bad binding mode": Case(but(CLASS, {"volumeBindingMode": "Later"}), "volumeBindingMode"),
    "no containers": Case(app_(spec(containers=[])), "spec.containers"),
    "too large": Case(data(meta(annotations={"a": "x" * 300_000})), "metadata.annotations"),
}
GROWN: Manifest = {"volumeName": "disk", "resources": {"requests": {"storage": "2Gi"}}}
CHANGED = {
    "label": Case(data(meta(labels={"a": "b"})), before=data({}), holds=meta(labels={"a": "b"})),
    "nothing": Case(data({}), before=data({})),
    "image of a pod": Case(
        app_(spec(containers=[{"name": "main", "image": "app:2"}])),
        before=app_(spec(containers=[{"name": "main", "image": "app:1"}])),
    ),
    "template of a set": Case(
        but(SET, spec(template={"spec": {"containers": [{"name": "main", "image": "app:2"}]}})), before=SET
    ),
    "service of a set": Case(but(SET, spec(serviceName="other")), "field is immutable", before=SET),
    "volumes of a pod": Case(
        app_(spec(volumes=[{"name": "v", "emptyDir": {}}])), "pod updates may not change fields", before=app_({})
    ),
    "class of a claim": Case(data(spec(storageClassName="other")), "spec is immutable", before=data({})),
    "source of a volume": Case(
        disk(spec(local={"path": "/elsewhere"})), "spec.persistentvolumesource is immutable", before=disk({})
    ),
    "provisioner of a class": Case(but(CLASS, {"provisioner": "y.io/p"}), "provisioner", before=CLASS),
    "size where the class says nothing": Case(
        data(spec(storageClassName="fixed", **GROWN)),
        "only dynamically provisioned pvc can be resized",
        before=data(spec(storageClassName="fixed", volumeName="disk")),
    ),
    "size where the class allows it": Case(
        data(spec(storageClassName="growing", **GROWN)),
        "volume expansion is not supported yet",
        before=data(spec(storageClassName="growing", volumeName="disk")),
    ),
    "size of a claim that is not bound": Case(
        data(spec(resources=GROWN["resources"])), "spec is immutable", before=data({})
    ),
    "new unknown field": Case(
        data(spec(frobs=1)), 'strict decoding error: unknown field "spec.frobs"', before=data({})
    ),
}  # fmt: skip


# --- doors ----------------------------------------------------------------------------------------------

Send = Callable[[Manifest], str | None]
"""Why the manifest is refused there; None: it is accepted."""


def timeless(value: Any) -> Any:
    """Without the moments that a door stamps: the doors are gone through one after another."""
    if isinstance(value, Mapping):
        return {name: timeless(part) for name, part in value.items() if name != "lastTransitionTime"}
    return [timeless(part) for part in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Door:
    database: Database
    create: Send | None
    change: Send | None

    @property
    def cluster(self) -> LocalCluster:
        return local_cluster(self.database, clock=system_clock, new_uid=lambda: "uid")

    def stored(self, manifest: Manifest) -> Manifest:
        held = self.cluster.get(manifest["kind"], key_of(manifest["kind"], manifest))
        assert held is not None
        named = {name: value for name, value in held["metadata"].items() if name not in GIVEN_BY_STORE}
        return {**timeless(held), "metadata": named}

    def forget(self, manifest: Manifest) -> None:
        """Cases share a store: what one has made is not there for the next."""
        stream = stream_of(manifest["kind"], key_of(manifest["kind"], manifest))
        gone = Command(actor="test", streams=(stream,), decide=lambda _: Decision(events=(deleted_event(stream),)))
        if self.cluster.get(manifest["kind"], key_of(manifest["kind"], manifest)) is not None:
            _must(self.database, gone)


BY = Author("test", "2026-11-17T12:00:00Z")


def _must(database: Database, *commands: Command) -> None:
    for outcome in execute(database, commands, now=system_clock()):
        if isinstance(outcome, Exception):
            raise outcome


def seeded(path: Path) -> Database:
    """What every door finds: classes, namespaces, priorities, a node, and claims with uids that are known."""
    database = open_database(f"sqlite:///{path}")
    unsynced(database)
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": it}} for it in ("shop", "dying")]
    priority = {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000,
    }  # fmt: skip
    growing = but(CLASS, {**meta(name="growing"), "allowVolumeExpansion": True})
    claims = [but(claim(name, "1Gi"), meta(namespace="shop")) for name in ("known", "lived")]
    objects = [*namespaces, priority, but(CLASS, {}), growing, node("n1", **{ZONE: "a"}), *claims]
    for manifest in objects:
        uid = f"uid-{manifest['metadata']['name']}"
        _must(database, door.create(manifest["kind"], manifest, BY, uid=uid).command)
    dying = {"metadata": {"deletionTimestamp": BY.now, "finalizers": ["x.io/wait"]}}
    lived = Decision(events=(deleted_event("claim/shop/lived"),))
    _must(
        database,
        door.edit("namespace/dying", dying, actor="test"),
        Command(actor="test", streams=("claim/shop/lived",), decide=lambda _: lived),
    )
    return database


def cli(verb: str, path: Path) -> Send:
    def send(manifest: Manifest) -> str | None:
        words = [verb, "-f", "-", "--db", str(path)]
        said = CliRunner().invoke(
            app, words, input=yaml.safe_dump(manifest), env={"NO_COLOR": "1", "COLUMNS": "9999"}
        )
        return None if said.exit_code == 0 else said.stderr

    return send


def library(database: Database) -> Send:
    engine = Engine(database)

    def send(manifest: Manifest) -> str | None:
        try:
            engine.apply(manifest)
        except (RefusedError, ManifestError) as error:
            return str(error)
        return None

    return send


def port(cluster: LocalCluster) -> Send:
    def send(manifest: Manifest) -> str | None:
        try:
            cluster.create(manifest["kind"], manifest)
        except PortRefusedError as error:
            return str(error)
        return None

    return send


def http_create(http: httpx.Client) -> Send:
    def send(manifest: Manifest) -> str | None:
        answer = http.post(collection(manifest), params={"fieldValidation": "Strict"}, json=manifest)
        return None if answer.status_code == 201 else str(answer.json()["message"])

    return send


def http_patch(http: httpx.Client) -> Send:
    def send(manifest: Manifest) -> str | None:
        answer = http.patch(
            f"{collection(manifest)}/{manifest['metadata']['name']}",
            params={"fieldValidation": "Strict"},
            content=json.dumps(manifest),
            headers={"content-type": "application/merge-patch+json"},
        )
        return None if answer.status_code == 200 else str(answer.json()["message"])

    return send


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[dict[str, Door]]:
    base = tmp_path_factory.mktemp("doors")
    stores: dict[str, Database] = {}
    for name in ("cli apply", "cli create", "http", "port", "library"):
        shutil.copyfile(migrated_file, base / f"{name}.db")
        stores[name] = seeded(base / f"{name}.db")
    with served(stores["http"]) as api:
        applied, created = cli("apply", base / "cli apply.db"), cli("create", base / "cli create.db")
        asked = library(stores["library"])
        yield {
            "cli apply": Door(stores["cli apply"], applied, applied),
            "cli create": Door(stores["cli create"], created, None),
            "http": Door(stores["http"], http_create(api.http), http_patch(api.http)),
            "port": Door(stores["port"], port(Door(stores["port"], None, None).cluster), None),
            "library": Door(stores["library"], asked, asked),
        }
    for database in stores.values():
        database.close()


# --- answers --------------------------------------------------------------------------------------------

READ = ("cli apply", "cli create", "library")
"""Doors that read files or texts."""
_AROUND = (r"strict decoding error: ", r" cannot be handled as a \w+: ", r" is invalid: ", r" is forbidden: ")


def core(said: str) -> str:
    """The reason, without what the door puts around it; of a refused update, without the fields that differ."""
    text = re.sub(r" \(did you mean [^)]*\?\)", "", " ".join(said.split()).split(" core.")[0])
    for mark in _AROUND:
        if found := re.search(mark, text):
            return text[found.end() :]
    return re.sub(r'^.*?\w+ "[^"]*": ', "", text, count=1)


@pytest.mark.parametrize("name", CREATED)
def test_what_is_created_gets_the_same_answer_everywhere(doors: dict[str, Door], name: str) -> None:
    case = CREATED[name]
    said = {at: it.create(copy.deepcopy(case.manifest)) for at, it in doors.items() if it.create is not None}
    judge(doors, case, said)


@pytest.mark.parametrize("name", CHANGED)
def test_what_is_changed_gets_the_same_answer_everywhere(doors: dict[str, Door], name: str) -> None:
    case = CHANGED[name]
    asked = {at: it for at, it in doors.items() if it.change is not None}
    assert case.before is not None
    for it in asked.values():
        it.forget(case.before)
        bound = {"phase": "Bound"} if "volumeName" in case.before.get("spec", {}) else None
        before = door.create(case.before["kind"], case.before, BY, uid="uid-before", status=bound)
        _must(it.database, before.command)
    judge(doors, case, {at: it.change(copy.deepcopy(case.manifest)) for at, it in asked.items() if it.change})
    for it in asked.values():
        it.forget(case.before)
        if case.before["metadata"]["name"] == "fixed":
            _must(it.database, door.create("StorageClass", CLASS, BY, uid="uid-fixed").command)


def judge(doors: dict[str, Door], case: Case, said: Mapping[str, str | None]) -> None:
    if case.reason is None:
        assert said == dict.fromkeys(said)
        stored = {at: doors[at].stored(case.manifest) for at in said}
        for at in said:
            doors[at].forget(case.manifest)
        first, *others = stored.values()
        assert others == [first] * len(others)
        assert merged(first, case.holds) == first
        return
    assert None not in said.values(), said
    cores = {at: core(text or "") for at, text in said.items()}
    straight = {text for at, text in cores.items() if at not in READ}
    assert len(straight) <= 1, cores
    assert all(case.reason in (text or "") for at, text in said.items() if not case.reader or at not in READ), said
    if not case.reader:
        assert len(set(cores.values())) == 1, cores


def test_what_is_nested_too_deep_is_refused_everywhere(doors: dict[str, Door]) -> None:
    """By whatever meets it first: a reader, or the field check of a door that is given the object."""
    said = [it.create(app_(spec(frobs=nested(70)))) for it in doors.values() if it.create is not None]
    assert None not in said


def test_there_are_forty_of_them() -> None:
    assert len(CREATED) + len(CHANGED) >= 40
