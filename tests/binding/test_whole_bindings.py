"""Bindings that are carried out in the transaction of their plan: the same as step by step, with fewer commits."""

import shutil
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from tests.support.armed_faults import armed, once
from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, pod, volume
from tests.support.extent import extent
from volsched.binding.executor import Executor
from volsched.lab.bench.statement_count import counted
from volsched.log import tables
from volsched.log.database import Database, open_database
from volsched.log.events.streams import noun_and_key
from volsched.log.integrity.verify import verify
from volsched.log.rows import VIEWS
from volsched.provisioning.simulated import Simulated
from volsched.pv_controller.completion import LegCompletion
from volsched.questions.invariants import violations
from volsched.runtime.fault_points import FaultError

ZONAL: Manifest = {**LOCAL, "metadata": {"name": "zonal"}, "provisioner": "volsched.io/simulated"}
NODES = ("node-0", "node-1")
CLASSES = ("local", "local", "local", "local", "zonal")
SMALL = [LOCAL, node("node-0"), volume("a", "5Gi", "node-0"), volume("b", "5Gi", "node-0")]
PAIR = [claim("left", "4Gi"), claim("right", "4Gi"), pod("db", "left", "right")]


def _final(database: Database) -> dict[str, Any]:
    """All that is so in the end, in terms that do not depend on ids, times and positions."""
    with database.read() as connection:
        events = connection.execute(select(tables.events).order_by(tables.events.c.position)).all()
        bindings = connection.execute(select(tables.bindings)).all()
        legs = connection.execute(select(tables.binding_legs)).all()
        done = connection.execute(select(tables.effects_done)).all()
        queued = connection.execute(select(tables.effects.c.key)).all()
        names = {row.id: f"of {row.pod}" for row in bindings}
        objects = {
            f"{noun}/{row.key}": _plain(orjson.loads(row.manifest), names)
            for noun, (table, *_) in VIEWS.items()
            if noun != "notice"
            for row in connection.execute(select(table.c.key, table.c.manifest))
        }
    streams = {row.position: _stream(row, names) for row in events}
    # Which of a binding's claims was bound last is not said by anything, only that a claim was.
    nouns = {position: noun_and_key(stream)[0] for position, stream in streams.items()}
    return {
        "objects": objects,
        "bindings": sorted((row.pod, row.node, row.state, row.open) for row in bindings),
        "legs": sorted((names[row.binding], row.claim, str(row.volume), row.state) for row in legs),
        "effects": sorted((names[row.binding], row.kind, row.outcome, row.attempts) for row in done),
        "queued": queued,
        "events": Counter(
            (streams[row.position], row.type, nouns.get(row.cause))
            for row in events
            if not row.stream.startswith("notice/")
        ),
    }


def _stream(row: Any, names: dict[str, str]) -> str:
    noun, _, key = row.stream.partition("/")
    return f"{noun}/{names.get(key, '') if noun in ('binding', 'attempt') else key}"


def _plain(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        dropped = ("uid", "resourceVersion", "creationTimestamp", "lastTransitionTime")
        return {key: _plain(it, names) for key, it in value.items() if key not in dropped}
    if isinstance(value, list):
        return [_plain(it, names) for it in value]
    return names.get(value, value) if isinstance(value, str) else value


def _claims_of(pod_: Manifest) -> list[str]:
    return [it["persistentVolumeClaim"]["claimName"] for it in pod_["spec"]["volumes"]]


@st.composite
def clusters(draw: st.DrawFn) -> list[Manifest]:
    """Local volumes on two nodes, and pods that may share claims, find none, or need provisioned ones."""
    disks = [
        volume(f"disk-{number}", draw(st.sampled_from(("5Gi", "9Gi"))), draw(st.sampled_from(NODES)))
        for number in range(draw(st.integers(1, 4)))
    ]
    claims = [
        claim(f"claim-{number}", draw(st.sampled_from(("4Gi", "8Gi"))), draw(st.sampled_from(CLASSES)))
        for number in range(draw(st.integers(1, 4)))
    ]
    names = [it["metadata"]["name"] for it in claims]
    pods = [
        pod(f"pod-{number}", *draw(st.lists(st.sampled_from(names), max_size=3, unique=True)))
        for number in range(draw(st.integers(1, 3)))
    ]
    return [LOCAL, ZONAL, *map(node, NODES), *disks, *claims, *pods]


@settings(max_examples=extent(4, 60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(clusters())
def test_both_ways_end_in_the_same_state_by_the_same_events(migrated_file: Path, objects: list[Manifest]) -> None:
    found, logs = [], []
    with TemporaryDirectory() as directory:
        for stepwise, drafts in ((True, False), (False, False), (False, True), (True, True)):
            file = Path(directory) / f"{stepwise}-{drafts}.db"
            shutil.copyfile(migrated_file, file)
            database = open_database(f"sqlite:///{file}")
            database.others.drafts = drafts
            surroundings = [it for it in objects if it["kind"] not in ("Pod", "PersistentVolumeClaim")]
            stepped = Stepped(database, surroundings, stepwise=stepwise, provisioners=[Simulated()])
            stepped.settle(quiet=5)
            stepped.create(*(it for it in objects if it not in surroundings))
            stepped.settle(quiet=5)
            found.append(_final(database))
            with database.read() as connection:
                assert violations(connection, at_rest=True) == []
                logs.append(connection.execute(select(tables.events).order_by(tables.events.c.position)).all())
            assert verify(database).findings == []
            database.close()
    step_by_step, whole, *_ = found
    # Decided before the lock or under it: the very same log, up to its hashes.
    assert (logs[2], logs[3]) == (logs[1], logs[0])
    used = Counter(name for it in objects if it["kind"] == "Pod" for name in _claims_of(it))
    for what, expected in step_by_step.items():
        # Pods that share a claim wait for each other, and how often one asks again depends on how long that takes.
        if what not in ("events", "effects") or max(used.values(), default=0) < 2:
            assert whole[what] == expected, what


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("stepwise", "most"), [(True, 6), (False, 1)])
def test_a_plan_and_all_that_follows_from_it_are_one_transaction(
    database: Database, stepwise: bool, most: int
) -> None:
    stepped = Stepped(database, SMALL, stepwise=stepwise)
    stepped.settle(quiet=5)
    stepped.create(*PAIR)
    with counted(database) as count:
        stepped.step()
    assert count is not None
    assert (stepped.node_of("db"), count.writes) == ("node-0", most)


def test_a_process_that_dies_before_the_commit_leaves_nothing_and_after_it_all(database: Database) -> None:
    stepped = Stepped(database, SMALL, stepwise=False)
    stepped.settle(quiet=5)
    stepped.create(*PAIR)

    def die() -> None:
        raise FaultError

    stepped.system.catch_up(stepped.now)
    with pytest.raises(FaultError), armed(once("commit.before", die)):
        stepped.system.scheduler.step(stepped.now)
    assert (stepped.bindings(), stepped.node_of("db")) == ([], None)

    again = Stepped(database, owner="second", stepwise=False)
    again.now = stepped.now
    again.system.catch_up(again.now)
    with pytest.raises(FaultError), armed(once("commit.after", die)):
        again.system.scheduler.step(again.now)
    assert again.node_of("db") == "node-0"

    last = Stepped(database, owner="third", stepwise=False)
    last.now = stepped.now
    last.settle(quiet=5)
    assert [row.state for row in last.bindings()] == ["committed"]
    assert {last.volume_of("left"), last.volume_of("right")} == {"a", "b"}


def test_a_volume_in_another_open_binding_is_refused_as_by_the_index(database: Database) -> None:
    shared = volume("only", "5Gi", "node-0")
    shared["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] = [*NODES]
    stepped = Stepped(database, [LOCAL, *map(node, NODES), shared], stepwise=True)
    stepped.settle(quiet=5)
    both = []
    for number, name in enumerate(NODES):
        own = pod(f"pod-{number}", f"claim-{number}")
        own["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
        both += [claim(f"claim-{number}", "4Gi"), own]
    stepped.create(*both)
    late = Stepped(database, owner="late", stepwise=False)
    for it, mine in ((stepped, "default/pod-0"), (late, "default/pod-1")):
        it.now = stepped.now
        it.system.catch_up(it.now)
        for key in {"default/pod-0", "default/pod-1"} - {mine}:
            it.system.scheduler.queue.planned(it.system.picture.index.snapshot.pods[key])
    stepped.system.scheduler.step(stepped.now)
    late.system.scheduler.step(stepped.now)
    assert [(row.pod, row.open) for row in stepped.bindings()] == [("default/pod-0", True)]


def test_what_fails_in_the_transaction_is_queued_as_before(database: Database) -> None:
    stepped = Stepped(database, SMALL, stepwise=False)
    stepped.settle(quiet=5)
    stepped.create(*PAIR)
    stepped.system.catch_up(stepped.now)
    failing = Executor(
        database, stepped.cluster, "worker/test", lease=1, completion=_refusing, new_mark=lambda: "never"
    )
    stepped.system.scheduler.continuation = failing.continuation
    stepped.system.scheduler.step(stepped.now)
    (binding,) = stepped.bindings()
    assert (binding.state, [leg.state for leg in stepped.legs(binding.id)]) == ("waiting", ["written", "written"])
    stepped.settle(quiet=5)
    assert stepped.node_of("db") == "node-0"


def _refusing(*_: object) -> None:
    raise RuntimeError("the tables do not know what to do")


def test_a_worker_carries_what_it_claims_to_the_end_in_one_transaction(database: Database) -> None:
    stepped = Stepped(database, SMALL, bell=lambda: None, stepwise=False)
    stepped.settle(quiet=5)
    stepped.create(*PAIR)
    stepped.system.catch_up(stepped.now)
    stepped.system.scheduler.step(stepped.now)
    (planned,) = stepped.bindings()
    worker = Executor(
        database, stepped.cluster, "worker/other", lease=30_000_000, completion=LegCompletion("controller/other")
    )
    assert (planned.state, worker.step("prebind", stepped.now).done) == ("prebinding", 2)
    assert [row.state for row in stepped.bindings()] == ["committed"]
    assert stepped.node_of("db") == "node-0"
    with database.read() as connection:
        assert violations(connection, at_rest=True) == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_each_kind_of_object_has_the_same_history_by_the_same_actors_both_ways(
    database: Database, migrated_file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    shutil.copyfile(migrated_file, other)
    answers = []
    for store, stepwise in ((database, True), (open_database(f"sqlite:///{other}"), False)):
        stepped = Stepped(store, SMALL, stepwise=stepwise)
        stepped.settle(quiet=5)
        stepped.create(*PAIR)
        stepped.settle(quiet=5)
        with store.read() as connection:
            rows = connection.execute(select(tables.events).order_by(tables.events.c.position)).all()
        told = [(it.stream.partition("/")[0], it.type, it.actor.partition("/")[0]) for it in rows]
        answers.append({noun: [it for it in told if it[0] == noun] for noun, *_ in told})
    step_by_step, whole = answers
    assert whole == step_by_step
