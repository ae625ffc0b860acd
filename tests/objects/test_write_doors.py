"""The same manifest gets the same answer at every door: CLI, HTTP, library, controllers, the port's local adapter.

The reasons are the same to the letter, but for what each door puts around them. Two differences remain.
Server-side apply refuses unknown fields in words of its own, as a real server does. A field of a wrong type is
reported by the reader of files with all others of the file and a remedy, and by the doors that get an object as it
is in the words of Kubernetes' decoder.
"""

import copy
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from tests.objects.write_door_cases import (
    CHANGED,
    CLASS,
    CREATED,
    SET,
    ZONE,
    Case,
    app_,
    but,
    data,
    meta,
    nested,
    spec,
)
from tests.support.clusters import claim, node
from tests.support.fresh_stores import unsynced
from tests.support.serving import collection, served
from volsched.cli.app import app
from volsched.cluster.local import LocalCluster
from volsched.cluster.port import CallRefusedError as PortRefusedError
from volsched.kube.kinds import KINDS, key_of
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
from volsched.objects.rules.object_events import ObjectError, deleted_event
from volsched.objects.surroundings import Subject, read_surroundings
from volsched.runtime.clock import system_clock
from volsched.runtime.system import local_cluster

Manifest = dict[str, Any]
GIVEN_BY_STORE = ("uid", "creationTimestamp", "resourceVersion")


# --- doors ----------------------------------------------------------------------------------------------

Send = Callable[[Manifest], str | None]
"""Why the manifest is refused there; None: it is accepted."""


def timeless(value: Any) -> Any:
    """Without the moments that a door stamps: the doors are gone through one after another."""
    if isinstance(value, Mapping):
        return {name: timeless(part) for name, part in value.items() if name != "lastTransitionTime"}
    return [timeless(part) for part in value] if isinstance(value, list) else value


Remove = Callable[[str, str], str | None]
"""Why the object of that kind and key may not be deleted there; None: it is deleted."""


@dataclass(frozen=True)
class Door:
    database: Database
    create: Send | None
    change: Send | None
    delete: Remove | None = None
    notes_owners: bool = False
    """Applying on the server alone writes down who owns which field."""

    @property
    def cluster(self) -> LocalCluster:
        return local_cluster(self.database, clock=system_clock, new_uid=lambda: "uid")

    def stored(self, manifest: Manifest) -> Manifest:
        held = self.cluster.get(manifest["kind"], key_of(manifest["kind"], manifest))
        assert held is not None
        given = (*GIVEN_BY_STORE, "managedFields") if self.notes_owners else GIVEN_BY_STORE
        named = {name: value for name, value in held["metadata"].items() if name not in given}
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
        return raised(partial(engine.apply, manifest), RefusedError, ManifestError)

    return send


def port(cluster: LocalCluster) -> Send:
    def send(manifest: Manifest) -> str | None:
        return raised(partial(cluster.create, manifest["kind"], manifest), PortRefusedError)

    return send


def controller(database: Database) -> Send:
    """As provisioners, node agent and the controllers of workloads create objects."""

    def send(manifest: Manifest) -> str | None:
        kind, author = manifest["kind"], door.controller("controller/test", system_clock())
        (around,) = read_surroundings(database, [Subject(kind, "", manifest)], zonal_upgrade=True)
        return refusal(database, door.create(kind, manifest, author, uid="uid", around=around).command)

    return send


def raised(call: Callable[[], object], *refusals: type[Exception]) -> str | None:
    try:
        call()
    except refusals as error:
        return str(error)
    return None


def refusal(database: Database, command: Command) -> str | None:
    (outcome,) = execute(database, [command], now=system_clock())
    return str(outcome) if isinstance(outcome, Exception) else None


def cli_delete(path: Path) -> Remove:
    def remove(kind: str, key: str) -> str | None:
        namespace, _, name = key.rpartition("/")
        words = ["delete", kind, name, *(["-n", namespace] if namespace else []), "--db", str(path)]
        said = CliRunner().invoke(app, words, env={"NO_COLOR": "1", "COLUMNS": "9999"})
        return None if said.exit_code == 0 else said.stderr

    return remove


def http_delete(http: httpx.Client) -> Remove:
    def remove(kind: str, key: str) -> str | None:
        namespace, _, name = key.rpartition("/")
        manifest = {
            "apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}
        }  # fmt: skip
        answer = http.delete(f"{collection(manifest)}/{name}")
        return None if answer.status_code in (200, 202) else str(answer.json()["message"])

    return remove


def library_delete(database: Database) -> Remove:
    def remove(kind: str, key: str) -> str | None:
        return raised(partial(Engine(database).delete, kind, key), ObjectError)

    return remove


def port_delete(cluster: LocalCluster) -> Remove:
    def remove(kind: str, key: str) -> str | None:
        return raised(partial(cluster.delete, kind, key), PortRefusedError)

    return remove


def controller_delete(database: Database) -> Remove:
    def remove(kind: str, key: str) -> str | None:
        author = door.controller("controller/test", system_clock())
        return refusal(database, door.delete(kind, key, author).command)

    return remove


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


def http_put(http: httpx.Client) -> Send:
    """As `kubectl edit` writes: what was read, with the changes in it, replaces the whole."""

    def send(manifest: Manifest) -> str | None:
        at = f"{collection(manifest)}/{manifest['metadata']['name']}"
        replacement = merged(http.get(at).raise_for_status().json(), manifest)
        answer = http.put(at, params={"fieldValidation": "Strict"}, json=replacement)
        return None if answer.status_code == 200 else str(answer.json()["message"])

    return send


def http_apply(http: httpx.Client) -> Send:
    """Server-side: one request for objects that are there and for those that are not."""

    def send(manifest: Manifest) -> str | None:
        answer = http.patch(
            f"{collection(manifest)}/{manifest['metadata']['name']}",
            params={"fieldValidation": "Strict", "fieldManager": "test", "force": "true"},
            content=json.dumps(manifest),
            headers={"content-type": "application/apply-patch+yaml"},
        )
        return None if answer.status_code in (200, 201) else str(answer.json()["message"])

    return send


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[dict[str, Door]]:
    base = tmp_path_factory.mktemp("doors")
    stores: dict[str, Database] = {}
    for name in ("cli apply", "cli create", "http", "http put", "http apply", "port", "library", "controller"):
        shutil.copyfile(migrated_file, base / f"{name}.db")
        stores[name] = seeded(base / f"{name}.db")
    with (
        served(stores["http"]) as api,
        served(stores["http put"]) as replacing,
        served(stores["http apply"]) as applying,
    ):
        applied, created = cli("apply", base / "cli apply.db"), cli("create", base / "cli create.db")
        asked = library(stores["library"])
        own = stores["controller"]
        port_cluster = Door(stores["port"], None, None).cluster
        yield {
            "cli apply": Door(stores["cli apply"], applied, applied, cli_delete(base / "cli apply.db")),
            "cli create": Door(stores["cli create"], created, None),
            "http": Door(stores["http"], http_create(api.http), http_patch(api.http), http_delete(api.http)),
            "http put": Door(stores["http put"], None, http_put(replacing.http)),
            "http apply": Door(
                stores["http apply"], http_apply(applying.http), http_apply(applying.http), notes_owners=True
            ),
            "port": Door(stores["port"], port(port_cluster), None, port_delete(port_cluster)),
            "library": Door(stores["library"], asked, asked, library_delete(stores["library"])),
            "controller": Door(own, controller(own), None, controller_delete(own)),
        }
    for database in stores.values():
        database.close()


# --- answers --------------------------------------------------------------------------------------------

READ = ("cli apply", "cli create", "library")
"""Doors that read files or texts."""
UNDECLARED = re.compile(r"failed to create typed patch object \([^)]*\): \.(\S+): field not declared in schema")
"""How a real server refuses an unknown field that is applied."""
UNKNOWN = r'strict decoding error: unknown field "\1"'
_AROUND = (r"strict decoding error: ", r" cannot be handled as a \w+: ", r" is invalid: ", r" is forbidden: ")


def core(said: str) -> str:
    """The reason, without what the door puts around it; of a refused update, without the fields that differ."""
    text = re.sub(r" \(did you mean [^)]*\?\)", "", " ".join(said.split()).split(" core.")[0])
    text = UNDECLARED.sub(UNKNOWN, text)
    for mark in _AROUND:
        if found := re.search(mark, text):
            return text[found.end() :]
    return re.sub(r'^.*?\w+ "[^"]*": ', "", text, count=1)


@pytest.mark.parametrize("name", CREATED)
def test_what_is_created_gets_the_same_answer_everywhere(doors: dict[str, Door], name: str) -> None:
    case = CREATED[name]
    said = {at: it.create(copy.deepcopy(case.manifest)) for at, it in doors.items() if it.create is not None}
    if case.kept_by_controllers:
        assert said.pop("controller") is None
        stored = doors["controller"].stored(case.manifest)
        assert merged(stored, case.holds) == stored
        doors["controller"].forget(case.manifest)
    if case.not_applied:
        assert case.not_applied in (said.pop("http apply") or "")
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


@pytest.mark.parametrize(
    ("kind", "key", "before", "reason"),
    [
        ("PersistentVolumeClaim", "default/data", data({}), None),
        ("PersistentVolumeClaim", "default/data", data(meta(finalizers=["x.io/mine"])), None),
        ("StatefulSet", "default/set", SET, None),
        ("PersistentVolumeClaim", "shop/none", None, "not found"),
        ("PersistentVolume", "none", None, "not found"),
        ("Namespace", "default", None, "this namespace may not be deleted"),
        ("Namespace", "kube-system", None, "this namespace may not be deleted"),
    ],
)
def test_what_is_deleted_gets_the_same_answer_everywhere(
    doors: dict[str, Door], kind: str, key: str, before: Manifest | None, reason: str | None
) -> None:
    at_doors = {at: it for at, it in doors.items() if it.delete is not None}
    assert len(at_doors) == 5
    for at_door in at_doors.values() if before is not None else ():
        _must(at_door.database, door.create(kind, before or {}, BY, uid="uid-before").command)
    said = {at: it.delete(kind, key) for at, it in at_doors.items() if it.delete is not None}
    if reason is not None:
        assert all(reason in (text or "") for text in said.values()), said
        return
    assert said == dict.fromkeys(said)
    left = [without_times(it.cluster.get(kind, key)) for it in at_doors.values()]
    assert left == [left[0]] * len(left)
    for at_door in at_doors.values():
        at_door.forget(before or {})


def without_times(manifest: Manifest | None) -> Manifest | None:
    """Without what differs from store to store."""
    if manifest is None:
        return None
    kept = set(manifest["metadata"]) - {*GIVEN_BY_STORE, "deletionTimestamp"}
    going = "deletionTimestamp" in manifest["metadata"]
    return {**timeless(manifest), "metadata": {name: manifest["metadata"][name] for name in kept}, "going": going}


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
    assert all(
        case.reason in UNDECLARED.sub(UNKNOWN, text or "")
        for at, text in said.items()
        if not case.reader or at not in READ
    ), said
    if not case.reader:
        assert len(set(cores.values())) == 1, cores


def test_what_is_nested_too_deep_is_refused_everywhere(doors: dict[str, Door]) -> None:
    """By whatever meets it first: a reader, or the field check of a door that is given the object."""
    said = [it.create(app_(spec(frobs=nested(70)))) for it in doors.values() if it.create is not None]
    assert None not in said


def test_there_are_forty_of_them() -> None:
    assert len(CREATED) + len(CHANGED) >= 40
