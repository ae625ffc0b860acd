"""`get` as kubectl's users write it (order, fields, paths, columns, labels) and `--dry-run`, here and there."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.conftest import Ran, Run
from tests.support.fresh_stores import unsynced_store
from tests.support.serving import served
from volsched.kube.json_path import JsonPathError, parse_path, parse_template, rendered, values_at
from volsched.log.database import open_database
from volsched.log.reads.tail import read_head

DOCUMENT = {
    "items": [
        {"name": "a", "size": 2, "tags": {"x.io/y": "1"}, "on": True},
        {"name": "b", "size": 10, "tags": {}},
        {"name": "c"},
    ]
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.items[*].name}", "a b c"),
        ("{.items[0].name}{.items[-1].name}", "ac"),
        ("{.items[0:2].name}", "a b"),
        ("{.items[1:].name}", "b c"),
        ("{range .items[*]}{.name}={.size}{'\\n'}{end}", "a=2\nb=10\nc=\n"),
        ("{.items[?(@.size>5)].name}", "b"),
        ('{.items[?(@.name=="a")].on}', "true"),
        ("{.items[?(@.tags)].name}", "a b"),
        ("{.items[0].tags['x.io/y']}", "1"),
        ("{.items[0].tags.x\\.io/y}", "1"),
        ("{..name}", "a b c"),
        ("first: {.items[0].name}", "first: a"),
        ("{.items[1].tags}", "{}"),
        ("{.nope.nothing}", ""),
        (".items[0].name", "a"),
    ],
)
def test_a_template_is_filled_as_by_kubectl(template: str, text: str) -> None:
    assert rendered(parse_template(template), DOCUMENT) == text


@pytest.mark.parametrize(
    "text", ["{.items[", "{range .items[*]}{.name}", "{end}", "{.a[?(x)]}", "{.a b'}", "", "{.a}}"]
)
def test_what_is_no_template_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(JsonPathError, match=r"write|add|remove"):
        parse_template(text)


def test_a_path_needs_neither_braces_nor_a_dot() -> None:
    for text in ("items[0].size", ".items[0].size", "{.items[0].size}", "$.items[0].size"):
        assert values_at(parse_path(text), DOCUMENT) == [2]


@dataclass(frozen=True)
class Places:
    db: str
    url: str
    run: Run

    def same(self, *words: str, stdin: bytes | None = None) -> Ran:
        here = self.run(*words, "--db", self.db, stdin=stdin)
        there = self.run(*words, "--server", self.url, stdin=stdin)
        assert (here.code, here.out) == (there.code, there.out), (here.err, there.err)
        return here


@pytest.fixture(scope="module")
def store(told_store: tuple[str, int]) -> Iterator[tuple[str, str]]:
    path, _ = told_store
    with unsynced_store(path) as database, served(database) as running:
        yield path, running.url


@pytest.fixture
def places(store: tuple[str, str], run: Run) -> Places:
    return Places(*store, run)


def test_rows_come_in_the_order_of_a_field(places: Places) -> None:
    names = "custom-columns=N:.metadata.name"
    by_size = places.same("get", "pv", "--sort-by", ".spec.capacity.storage", "-o", names, "--no-headers")
    assert by_size.out.split() == ["disk-0", "disk-1"]
    refused = places.same("get", "pv", "--sort-by", ".spec.nope")
    assert (refused.code, refused.out) == (2, "")


def test_rows_are_chosen_by_fields(places: Places) -> None:
    assert places.same("get", "pods", "-A", "--field-selector", "metadata.name=db", "-o", "name").out == "pod/db\n"
    left = places.same(
        "get", "pods", "-A", "--field-selector", "metadata.name!=db,metadata.name!=late", "-o", "name"
    )
    assert left.out == "pod/waiting\n"
    none = places.run("get", "pods", "-A", "--field-selector", "status.phase=Failed", "--db", places.db)
    assert (none.code, none.err) == (0, "there are no pods with status.phase=Failed\n")
    typo = places.same("get", "pods", "--field-selector", "status.phas=Failed")
    assert typo.code == 2


def test_headers_can_be_left_out_and_labels_added(places: Places) -> None:
    rows = places.same("get", "nodes", "--no-headers", "--show-labels").out.splitlines()
    assert len(rows) == 1
    assert rows[0].startswith("node-1")
    assert rows[0].split()[-1] == "kubernetes.io/hostname=node-1,tier=slow"
    assert places.same("get", "nodes", "-o", "csv", "--no-headers").out.count("\n") == 1


def test_paths_and_columns_show_parts_of_objects(places: Places) -> None:
    assert places.same("get", "pod", "db", "-o", "jsonpath={.metadata.name}").out == "db\n"
    assert places.same("get", "pv", "-o", "jsonpath={.items[*].metadata.name}").out == "disk-0 disk-1\n"
    table = places.same("get", "pv,nodes", "-o", "custom-columns=KIND:.kind,NAME:metadata.name,NO:.a.b").out
    assert [it.split() for it in table.splitlines()] == [
        ["KIND", "NAME", "NO"],
        ["PersistentVolume", "disk-0", "<none>"],
        ["PersistentVolume", "disk-1", "<none>"],
        ["Node", "node-1", "<none>"],
    ]


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-9"}}
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "new", "namespace": "elsewhere"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest.mark.parametrize(
    ("flag", "remark"),
    [("--dry-run=client", "(dry run)"), ("--dry-run=server", "(server dry run)"), ("--dry-run", "(dry run)")],
)
def test_a_dry_run_says_what_would_be_done_and_does_nothing(places: Places, flag: str, remark: str) -> None:
    database = open_database(f"sqlite:///{places.db}")
    with database.read() as connection:
        before = read_head(connection).position
    both = json.dumps(NODE).encode() + b"\n" + json.dumps(CLAIM).encode()
    made = places.same("apply", flag, "-f", "-", stdin=both)
    assert made.out == f"node/node-9 created {remark}\npersistentvolumeclaim/elsewhere/new created {remark}\n"
    changed = {**NODE, "metadata": {"name": "node-1", "labels": {"a": "b"}}}
    assert (
        places.same("apply", "-f", "-", flag, stdin=json.dumps(changed).encode()).out
        == f"node/node-1 configured {remark}\n"
    )
    same = {**NODE, "metadata": {"name": "node-1"}}
    assert (
        places.same("apply", "-f", "-", flag, stdin=json.dumps(same).encode()).out
        == f"node/node-1 unchanged {remark}\n"
    )
    assert places.same("create", "-f", "-", flag, stdin=json.dumps(same).encode()).code == 7
    assert places.same("delete", flag, "node", "node-1").out == f"node/node-1 deleted {remark}\n"
    assert "is marked" in places.same("delete", "pv", "disk-1", flag).out
    assert places.same("delete", "pv", "disk-7", flag).code == 3
    with database.read() as connection:
        assert read_head(connection).position == before
    database.close()


def test_a_dry_run_without_a_store_makes_none(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    ran = run("apply", "-f", "-", "--dry-run", "--db", str(file), stdin=json.dumps(NODE).encode())
    assert (ran.code, ran.out, file.exists()) == (0, "node/node-9 created (dry run)\n", False)
