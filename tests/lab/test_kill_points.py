"""A real process is killed at every fault point, again and again on one store; what follows must end well."""

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json
from sqlalchemy import func, select

from tests.cli.conftest import Run as Command
from tests.cli.conftest import run
from tests.lab.victim import CLAIMS, PODS, Run, be_killed, create_classes, create_pods
from tests.support.extent import FULL
from tests.support.forked import exit_code_of
from volsched.kube.meta import BINDING_STAMP
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.questions.invariants import violations
from volsched.runtime.fault_points import DRILL_FLAG, FAULT, POINTS

__all__ = ["run"]
CALLS = frozenset({"executor.calling", "executor.called"})
"""Places that are reached only where the cluster is somebody else's."""
PASSES = {"sqlite": (1, 2, 5) if FULL else (1, 5), "postgresql": (2,)}
"""The time at which a place kills, for every process that is sent there; `make drills` sends more of them."""
ONCE = frozenset({"recovery.begun", "recovery.done"})
"""Places that are reached once in the life of a process."""


@pytest.mark.parametrize(
    ("point", "stepwise"),
    [*((it, True) for it in sorted(POINTS)), ("commit.before", False), ("commit.after", False)],
)
def test_killed_at_this_point_every_binding_still_ends_whole(
    database: Database, url: str, point: str, stepwise: bool
) -> None:
    calls = point in CALLS
    create_classes(database)
    passes = PASSES[database.engine.dialect.name]
    for times in passes:
        create_pods(database, f"run-{times}")
        fault = f"{point}*{1 if point in ONCE else times}:kill"
        armed = {DRILL_FLAG: "1", FAULT: fault}
        assert exit_code_of(be_killed, url, f"victim-{times}", armed, calls, stepwise) == -signal.SIGKILL
        nothing_is_violated(database)
    last = Run(database, "last", calls=calls, stepwise=stepwise)
    assert last.until(lambda: has_ended(database, len(passes))), summary(database)
    everything_is_whole(database, len(passes))


@pytest.mark.parametrize(
    ("armed", "told"),
    [
        ({FAULT: "commit.before:kill"}, "VOLSCHED_DRILL=1"),
        ({DRILL_FLAG: "1", FAULT: "commit.around:kill"}, "there is no place commit.around"),
    ],
    ids=["without the drill flag", "at an unknown place"],
)
def test_arming_is_refused(
    armed: dict[str, str], told: str, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in armed.items():
        monkeypatch.setenv(name, value)
    db = str(tmp_path / "store.db")
    assert run("migrate", "--db", db).code == 0
    refused = run("serve", "scheduler", "--db", db)
    assert (refused.code, told in refused.err) == (2, True)


def has_ended(database: Database, runs: int) -> bool:
    """Pods that fit run, and at this moment nothing is under way; a doomed pod is tried again now and then."""
    with database.read() as connection:
        open_ = connection.execute(select(func.count()).select_from(tables.bindings).where(tables.bindings.c.open))
        queued = connection.execute(select(func.count()).select_from(tables.effects))
        return open_.scalar() == 0 and queued.scalar() == 0 and len(bound_pods(database)) == runs * PODS


def summary(database: Database) -> Any:
    with database.read() as connection:
        states = Counter(connection.execute(select(tables.bindings.c.state)).scalars())
        effects = Counter(connection.execute(select(tables.effects.c.kind, tables.effects.c.state)).tuples())
    return states, effects, bound_pods(database)


def bound_pods(database: Database) -> dict[str, str]:
    found = manifests(database, tables.pods)
    return {key: it["spec"]["nodeName"] for key, it in found.items() if it["spec"].get("nodeName")}


def nothing_is_violated(database: Database, *, at_rest: bool = False) -> None:
    with database.read() as connection:
        assert violations(connection, at_rest=at_rest) == []
    assert verify(database).ok


def everything_is_whole(database: Database, runs: int) -> None:
    volumes, claims = manifests(database, tables.volumes), manifests(database, tables.claims)
    with database.read() as connection:
        states = Counter(connection.execute(select(tables.bindings.c.state)).scalars())
    assert set(states) == {"committed", "rolled-back"}
    assert states["committed"] == runs * PODS
    assert states["rolled-back"] >= runs
    assert not any("doomed" in key for key in bound_pods(database))
    held = {key: it["spec"].get("volumeName") for key, it in claims.items()}
    for key, name in held.items():
        if "doomed" not in key:
            assert name is not None, f"{key} belongs to a pod that runs, and is not bound"
        if name is not None:
            reference = volumes[name]["spec"]["claimRef"]
            assert f"{reference['namespace']}/{reference['name']}" == key
    taken = [name for name in held.values() if name is not None]
    assert len(taken) == len(set(taken)) >= runs * PODS * CLAIMS
    for name, it in volumes.items():
        if name not in taken:
            assert BINDING_STAMP not in it["metadata"].get("annotations", {}), f"{name} is free and stamped"
            assert "claimRef" not in it["spec"]
    nothing_is_violated(database, at_rest=True)


def manifests(database: Database, table: Any) -> dict[str, Any]:
    with database.read() as connection:
        return {
            row.key: from_json(row.manifest) for row in connection.execute(select(table.c.key, table.c.manifest))
        }
