"""Whatever a door accepts, every reader takes: export, import, verify, archive, backup, restore, replay, rebuild.

The doors are HTTP (create, and each form of patch), the library, whose `apply` is the command line's, and the
controllers, which go on with whatever they find. Values are odd and deep on purpose.
"""

import io
import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.clusters import node
from tests.support.extent import extended, extent
from tests.support.serving import served
from volsched.api.kubernetes.negotiation import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from volsched.kube.problems import ManifestError
from volsched.library import Engine, RefusedError
from volsched.log.database import Database, open_database
from volsched.log.durable_files import import_log, lines_of_file, verify_export
from volsched.log.integrity.replay import fold_log
from volsched.log.integrity.verify import rebuild, verify
from volsched.log.reads.startup import load_nodes, load_world
from volsched.log.reads.tail import read_head
from volsched.log.retention.archive import archive
from volsched.log.retention.backup import back_up, restore
from volsched.log.retention.export import events_of, manifest_of, write_csv, write_jsonl
from volsched.runtime.clock import SECOND, system_clock

pytestmark = extended

LATER = 1_000 * SECOND
NODES, VOLUMES = "/api/v1/nodes", "/api/v1/persistentvolumes"
DEPTHS = (1, 20, 40, 58, 61, 62, 63, 64, 65, 66, 100, 198, 199, 200, 245, 250)
TEXTS = st.text(max_size=8) | st.sampled_from(
    ["\x00", "\x1b[31m", "é\u2028", "=1+1", "null", "a" * 300, "\U0001f600"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from([1e22, -0.0, 5e-324, 2**63, 2**63 - 1, -(2**63)])
    | TEXTS
)
PLAIN = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)


def nested(depth: int, leaf: Any, *, lists: bool) -> Any:
    value = leaf
    for _ in range(depth):
        value = [value] if lists else {"a": value}
    return value


DEEP = st.builds(nested, st.sampled_from(DEPTHS), SCALARS, lists=st.booleans())
VALUES = PLAIN | DEEP
FIELDS = st.sampled_from(
    ["x", "$patch", "a/b", "", "nodeAffinity", "claimRef", "capacity", "labels", "finalizers"]
)
PATHS = st.sampled_from(
    ["/spec/x", "/spec/x/a", "/spec/x/a/a/a/a/b", "/metadata/annotations", "/status", "/spec/-", ""]
)


@st.composite
def operations(draw: st.DrawFn) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 4))):
        op, path = draw(st.sampled_from(["add", "replace", "copy", "move"])), draw(PATHS)
        other = {"value": draw(VALUES)} if op in ("add", "replace") else {"from": draw(PATHS)}
        # Again and again: a copy into itself makes what is copied deeper each time.
        made += [{"op": op, "path": path, **other}] * draw(st.sampled_from([1, 1, 3, 7]))
    return made


REQUESTS = st.one_of(
    st.tuples(st.just("create"), st.dictionaries(FIELDS, VALUES, max_size=2)),
    st.tuples(st.just(JSON_PATCH), operations()),
    st.tuples(
        st.sampled_from([MERGE_PATCH, STRATEGIC_PATCH]),
        st.dictionaries(
            st.sampled_from(["spec", "metadata", "status"]), st.dictionaries(FIELDS, VALUES), max_size=2
        ),
    ),
    st.tuples(st.just("library"), st.dictionaries(FIELDS, VALUES, max_size=2)),
)


def volume(name: str) -> dict[str, Any]:
    """With a zone label: whoever admits it reads all nodes."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "d", "volumeHandle": name},
        },
    }


def send(http: httpx.Client, number: int, request: tuple[str, Any]) -> None:
    what, body = request
    made = volume(f"v{number}") if number % 2 else node(f"n{number}")
    path = VOLUMES if number % 2 else NODES
    if what == "create":
        answers = [http.post(path, content=json.dumps(_with(made, body)))]
    else:
        answers = [http.post(path, json=made)]
        to = f"{path}/{made['metadata']['name']}"
        answers += [http.patch(to, content=json.dumps(body), headers={"content-type": what}), http.get(to)]
    assert all(it.status_code < 500 or not it.json().get("reason") for it in answers), [it.text for it in answers]


def _with(manifest: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "spec": {**manifest.get("spec", {}), **fields}}


def apply(engine: Engine, number: int, fields: dict[str, Any]) -> None:
    try:
        engine.apply([_with(volume(f"l{number}"), fields)])
    except (RefusedError, ManifestError, TypeError, ValueError):
        return


def survives(database: Database, template: Path, directory: Path) -> None:
    report = verify(database)
    assert report.ok, [str(it) for it in report.findings]
    with database.read() as connection:
        last = read_head(connection).position
        load_world(connection)
        load_nodes(connection)
        fold_log(connection)
        manifest = manifest_of(connection, last=last, now=system_clock())
        out, table = io.StringIO(), io.StringIO()
        write_jsonl(out, manifest, events_of(connection, manifest))
        write_csv(table, events_of(connection, manifest))
    lines = list(io.StringIO(out.getvalue()))
    assert verify_export(lines).last == last
    back_up(database, out=directory / "backup.jsonl.gz", now=system_clock())
    imported, restored = (copy_of(template, directory / f"{name}.db") for name in ("imported", "restored"))
    import_log(imported, lines)
    restore(restored, lines_of_file(directory / "backup.jsonl.gz"))
    rebuild(imported)
    # All but its last event, once nobody can still ask for them.
    archive(imported, until=last - 1, out=directory / "archive.jsonl", now=system_clock() + LATER)
    assert verify_export(lines_of_file(directory / "archive.jsonl")).last == last - 1
    for other in (imported, restored):
        assert verify(other).ok
        other.close()


def copy_of(template: Path, path: Path) -> Database:
    shutil.copy(template, path)
    return open_database(f"sqlite:///{path}")


@settings(max_examples=extent(6, 12), deadline=None)
@given(requests=st.lists(REQUESTS, min_size=1, max_size=8))
def test_whatever_a_door_accepts_every_reader_takes(migrated_file: Path, requests: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as made:
        directory = Path(made)
        database = copy_of(migrated_file, directory / "store.db")
        with served(database) as api:
            api.create(node("first"), node("second"))
            for number, request in enumerate(requests):
                if request[0] != "library":
                    send(api.http, number, request)
            for path in (NODES, VOLUMES):
                assert api.http.get(path).status_code == 200
                table = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
                assert api.http.get(path, headers=table).status_code == 200
        with Engine.open(f"sqlite:///{directory / 'store.db'}") as engine:
            for number, (what, body) in enumerate(requests):
                if what == "library":
                    apply(engine, number, body)
            engine.run_until_idle(timeout=5)
        survives(database, migrated_file, directory)
        database.close()


@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("depth", DEPTHS)
def test_a_depth_is_refused_or_read_by_all(migrated_file: Path, tmp_path: Path, depth: int, lists: bool) -> None:
    database = copy_of(migrated_file, tmp_path / "store.db")
    with Engine.open(f"sqlite:///{tmp_path / 'store.db'}") as engine:
        engine.apply([volume("first"), volume("second")])
        apply(engine, 1, {"x": nested(depth, "end", lists=lists)})
    survives(database, migrated_file, tmp_path)
    database.close()
