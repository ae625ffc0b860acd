"""`volsched get`: kubectl's words and columns, any moment of the past, and what is told of a wrong question."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.manifest_samples import sample
from volsched import Engine
from volsched.kube.kinds import KINDS
from volsched.kube.selectors import SelectorTextError, label_selector_matches, parse_label_selector
from volsched.log.events.streams import NAMED, SHORT, Named, kind_called
from volsched.questions.get.documents import age

SECOND = 1_000_000


@pytest.fixture
def db(told_store: tuple[str, int]) -> str:
    return told_store[0]


def table(text: str) -> list[dict[str, str]]:
    """Rows by header, read by where the headers stand, as people do."""
    head, *rows = text.splitlines()
    starts = [i for i, char in enumerate(head) if char != " " and (i == 0 or head[i - 3 : i].isspace())]
    spans = list(zip(starts, [*starts[1:], None], strict=True))
    return [{head[a:b].strip(): row[a:b].strip() for a, b in spans} for row in rows]


def test_volumes_have_kubectls_columns(run: Run, db: str) -> None:
    bound, free = table(run("get", "pv", "--db", db).out)
    age = bound.pop("AGE")
    assert re.fullmatch(r"(\d+[hms]){1,2}", age)
    assert bound == {
        "NAME": "disk-0", "CAPACITY": "5Gi", "ACCESS MODES": "RWO", "RECLAIM POLICY": "Retain", "STATUS": "Bound",
        "CLAIM": "default/data", "STORAGECLASS": "local", "VOLUMEATTRIBUTESCLASS": "<unset>", "REASON": "",
    }  # fmt: skip
    assert (free["NAME"], free["STATUS"], free["CLAIM"]) == ("disk-1", "Available", "")


def test_wide_volumes_show_what_is_decided_and_not_written(run: Run, db: str) -> None:
    bound, promised = table(run("get", "pv", "-o", "wide", "--db", db).out)
    assert (bound["BINDING"], bound["ASSUMED CLAIM"], bound["NODE"]) == ("<none>", "<none>", "<none>")
    assert (promised["STATUS"], promised["CLAIM"]) == ("Available", "")
    assert (promised["ASSUMED CLAIM"], promised["NODE"]) == ("default/more", "node-1")
    (binding,) = [row for row in table(run("get", "bindings", "--db", db).out) if row["STATE"] == "prebinding"]
    assert promised["BINDING"] == binding["NAME"]
    assert (binding["POD"], binding["NODE"], binding["LEGS"]) == ("late", "node-1", "1")


def test_claims_and_pods_are_those_of_a_namespace(run: Run, db: str) -> None:
    claims = table(run("get", "pvc", "--db", db).out)
    assert [(row["NAME"], row["STATUS"], row["VOLUME"], row["CAPACITY"]) for row in claims] == [
        ("data", "Bound", "disk-0", "5Gi"),
        ("more", "Pending", "", ""),
    ]
    assert [row["NAME"] for row in table(run("get", "po", "-n", "shop", "--db", db).out)] == ["waiting"]
    everywhere = table(run("get", "pods", "-A", "-o", "wide", "--db", db).out)
    assert [(row["NAMESPACE"], row["NAME"], row["NODE"], row["ASSUMED NODE"]) for row in everywhere] == [
        ("default", "db", "node-0", "<none>"),
        ("default", "late", "<none>", "node-1"),
        ("shop", "waiting", "<none>", "<none>"),
    ]


def test_attempts_say_why_a_pod_waits(run: Run, db: str) -> None:
    (row,) = table(run("get", "attempts", "-n", "shop", "--db", db).out)
    assert (row["POD"], row["OUTCOME"]) == ("waiting", "unschedulable")
    assert "didn't find available persistent volumes" in row["MESSAGE"]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> str:
    """A store with one bare object of every kind."""
    path = tmp_path_factory.mktemp("samples") / "store.db"
    shutil.copyfile(migrated_file, path)
    with Engine.open(str(path)) as engine:
        engine.apply(sample(kind, name=f"a-{kind.lower()}") for kind in KINDS)
    return str(path)


@pytest.mark.parametrize("form", ["wide", "csv", "name", "json", "yaml"])
def test_every_kind_can_be_listed_in_every_form(run: Run, samples: str, form: str) -> None:
    ran = run("get", ",".join(named.plural for named in NAMED), "-A", "-o", form, "--db", samples)
    assert (ran.code, ran.err) == (0, "")
    for kind in KINDS:
        assert f"a-{kind.lower()}" in ran.out


@pytest.mark.parametrize("named", NAMED, ids=lambda named: named.plural)
def test_a_kind_has_several_names(named: Named) -> None:
    names = (named.singular, named.plural, named.title, named.title.upper(), *SHORT.get(named.title, ()))
    assert {kind_called(name) for name in names} == {named}


def test_json_and_yaml_are_the_objects_and_lists_are_lists(run: Run, db: str) -> None:
    one = json.loads(run("get", "pv", "disk-0", "-o", "json", "--db", db).out)
    assert (one["apiVersion"], one["kind"], one["metadata"]["name"]) == ("v1", "PersistentVolume", "disk-0")
    assert one["metadata"]["resourceVersion"].isdecimal()
    listed = json.loads(run("get", "pv", "-o", "json", "--db", db).out)
    assert (listed["apiVersion"], listed["kind"], list(listed)) == ("v1", "List", ["apiVersion", "kind", "items"])
    assert listed["items"][0] == one
    assert yaml.safe_load(run("get", "pv", "-o", "yaml", "--db", db).out) == listed
    assert yaml.safe_load(run("get", "pv/disk-0", "-o", "yaml", "--db", db).out) == one
    mixed = json.loads(run("get", "pv,pvc", "-A", "-o", "json", "--db", db).out)
    assert [it["kind"] for it in mixed["items"]] == ["PersistentVolume"] * 2 + ["PersistentVolumeClaim"] * 3
    (bound, _) = json.loads(run("get", "bindings", "-o", "json", "--db", db).out)["items"]
    assert (bound["kind"], bound["status"]["state"], bound["status"]["legs"][0]["volume"]) == (
        "Binding", "committed", "disk-0",
    )  # fmt: skip
    nothing = run("get", "sts", "-o", "json", "--db", db)
    assert json.loads(nothing.out)["items"] == []


def test_csv_has_the_wide_columns_and_names_are_names(run: Run, db: str) -> None:
    rows = list(csv.DictReader(run("get", "pvc", "-A", "-o", "csv", "--db", db).out.splitlines()))
    assert [(row["NAMESPACE"], row["NAME"], row["VOLUMEMODE"]) for row in rows] == [
        ("default", "data", "Filesystem"), ("default", "more", "Filesystem"), ("shop", "wide", "Filesystem"),
    ]  # fmt: skip
    assert run("get", "sc,pv", "-o", "name", "--db", db).out.splitlines() == [
        "storageclass/local", "persistentvolume/disk-0", "persistentvolume/disk-1",
    ]  # fmt: skip


def test_several_kinds_stand_under_each_other_with_their_names(run: Run, db: str) -> None:
    first, second = run("get", "sc,no", "--db", db).out.split("\n\n")
    assert table(first)[0]["NAME"] == "storageclass/local"
    assert [row["NAME"] for row in table(second)] == ["node/node-1"]


def test_as_of_shows_what_was_there_then(run: Run, told_store: tuple[str, int]) -> None:
    db, position = told_store
    now, then = run("get", "nodes,pv,pods", "-A", "-o", "name", "--db", db).out.split(), str(position)
    past = run("get", "nodes,pv,pods", "-A", "-o", "name", "--db", db, "--as-of", then).out.split()
    assert set(past) - set(now) == {"node/node-0"}
    assert set(now) - set(past) == {"persistentvolume/disk-1", "pod/late", "pod/waiting"}
    one = json.loads(run("get", "pv", "disk-0", "-o", "json", "--db", db, "--as-of", "6").out)
    assert (one["status"]["phase"], "claimRef" in one["spec"]) == ("Pending", False)
    (row,) = table(run("get", "bindings", "--db", db, "--as-of", then).out)
    assert row["STATE"] == "committed"
    future = run("get", "pods", "--db", db, "--as-of", "2999-01-01", "-o", "name")
    assert (future.code, future.out) == (2, "")


def test_as_of_a_time_before_everything_there_is_nothing(run: Run, db: str) -> None:
    ran = run("get", "pods", "--db", db, "--as-of", "1999-01-01T00:00:00Z")
    assert (ran.code, ran.out) == (0, "")
    assert "there are no pods in namespace default" in ran.err
    assert run("get", "pod", "db", "--db", db, "--as-of", "1999-01-01").code == 3


def test_selectors_choose_by_labels(run: Run, db: str) -> None:
    assert run("get", "no", "-l", "tier in (slow,none)", "-o", "name", "--db", db).out == "node/node-1\n"
    assert run("get", "pv", "-l", "tier", "-o", "name", "--db", db).out == "persistentvolume/disk-1\n"
    assert run("get", "pv", "-l", "!tier", "-o", "name", "--db", db).out == "persistentvolume/disk-0\n"


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a != b", {"a": "b"}, False),
        ("a in (b, c),d", {"a": "c", "d": ""}, True),
        ("a in (b, c),d", {"a": "c"}, False),
        ("a notin (b)", {"a": "b"}, False),
        ("a notin (b)", {}, True),
        (" ! a , b = c", {"b": "c"}, True),
        ("example.com/a=", {"example.com/a": ""}, True),
    ],
)
def test_a_selector_means_what_kubectl_makes_of_it(text: str, labels: dict[str, str], matches: bool) -> None:
    assert label_selector_matches(parse_label_selector(text), labels) is matches


@pytest.mark.parametrize("text", ["", " ", "=", "a b", "a=b,", ",a", "a in b", "a in (b", "a=b=c", "a=b c", "a>3"])
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorTextError):
        parse_label_selector(text)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("pvx",), 3, "did you mean pv or pvc?"),
        (("volum",), 3, "did you mean persistentvolume or"),
        (("pv", "disk-7"), 3, 'PersistentVolume "disk-7" not found; did you mean disk-'),
        (("pod", "waiting"), 3, "did you mean shop/waiting?"),
        (("pod", "waitin", "-n", "shop"), 3, "did you mean shop/waiting?"),
        (("sts", "nothing-like-it"), 3, "volsched get statefulsets -A"),
        (("binding", "nowhere"), 3, 'Binding "nowhere" not found'),
        (("node", "node-0"), 3, "it was deleted at position"),
        (("pods", "-A", "-n", "shop"), 2, "-n and -A contradict each other"),
        (("pods", "db", "-A"), 2, "leave -A out"),
        (("pods,pvc", "db"), 2, "of one kind"),
        (("pod", "shop/db", "-n", "default"), 2, "names namespace shop"),
        (("pv", "disk-0", "-l", "a=b"), 2, "give a name or a selector"),
        (("pv", "-l", "a=b=c"), 2, "write KEY=VALUE"),
        (("pv", "-l", "a=-"), 2, 'value "-"'),
        (("bindings", "-l", "a=b"), 2, "bindings have no labels"),
        (("pv", "--as-of", "someday"), 2, "neither a position nor a time"),
        (("pv", "--as-of", "99999"), 3, "position 99999 does not exist yet"),
        (("pv", "-w", "--as-of", "3"), 2, "give one of them"),
        (("pv,pvc", "-w"), 2, "one kind can be watched"),
        (("pv", "-o", "xml"), 2, "'xml' is not one of"),
    ],
)
def test_a_wrong_question_is_answered_with_what_to_ask(
    run: Run, db: str, words: tuple[str, ...], code: int, said: str
) -> None:
    ran = run("get", *words, "--db", db)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


def test_what_is_there_is_shown_and_what_is_not_is_reported(run: Run, db: str) -> None:
    ran = run("get", "pv", "disk-1", "disk-x", "-o", "name", "--db", db)
    assert (ran.code, ran.out) == (3, "persistentvolume/disk-1\n")
    assert 'PersistentVolume "disk-x" not found' in ran.err


def test_nothing_found_is_no_failure(run: Run, db: str) -> None:
    ran = run("get", "pods", "-n", "empty", "--db", db)
    assert (ran.code, ran.out) == (0, "")
    assert run("get", "pv", "-l", "a=b", "--db", db).err == "there are no persistentvolumes with these labels\n"
    assert ran.err == "there are no pods in namespace empty; -A shows those of every namespace\n"


def test_without_a_store_the_next_command_is_named(run: Run, tmp_path: Path) -> None:
    ran = run("get", "pv", "--db", str(tmp_path / "none.db"))
    assert (ran.code, ran.out) == (1, "")
    assert f"nothing here yet: there is no store in {tmp_path / 'none.db'}; " in ran.err
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (600, "10m"), (659, "10m"), (10_799, "179m"),
        (10_800, "3h"), (11_400, "3h10m"), (28_800, "8h"), (172_799, "47h"), (172_800, "2d"), (180_000, "2d2h"),
        (691_200, "8d"), (63_071_999, "729d"), (63_072_000, "2y"), (63_244_800, "2y2d"), (252_288_000, "8y"),
    ],
)  # fmt: skip
def test_ages_are_rounded_as_kubectl_rounds_them(seconds: int, text: str) -> None:
    assert age(5 * SECOND, (5 + seconds) * SECOND) == text


def test_a_node_of_an_old_cluster_is_in_its_zone(run: Run, tmp_path: Path) -> None:
    labels = {"failure-domain.beta.kubernetes.io/zone": "eu-1a"}
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "old", "labels": labels}}
    store = ["--db", str(tmp_path / "old.db")]
    assert run("apply", "-f", "-", *store, stdin=json.dumps(manifest).encode()).code == 0
    (row,) = table(run("get", "nodes", "-o", "wide", *store).out)
    assert row["ZONE"] == "eu-1a"
