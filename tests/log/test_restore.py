"""A store from an older backup, set going again: what was in flight goes on or is undone, nothing is bound twice.

On our own log the restored store is the cluster. A foreign cluster has gone on since: the mirror shows it.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clusters import LOCAL, START, Stepped, claim, node, pod, volume
from tests.support.foreign import in_cluster, in_views, simulated
from tests.support.foreign_scene import CLAIM, LEASE, POD, VOLUME, Scene
from tests.support.port_manifests import claim as foreign_claim
from tests.support.port_manifests import pod as foreign_pod
from volsched.binding.executor import Executor
from volsched.binding.recovery import Recovered, recover
from volsched.cluster.mirror import Mirror
from volsched.log.database import Database
from volsched.log.durable_files import lines_of_file
from volsched.log.integrity.verify import verify
from volsched.log.migrations import scratch_store
from volsched.log.retention.backup import back_up, restore
from volsched.questions.invariants import violations
from volsched.runtime.clock import SECOND


@pytest.fixture
def copy() -> Iterator[Database]:
    with scratch_store() as store:
        yield store


def carried(into: Database, directory: Path) -> None:
    restore(into, lines_of_file(directory / "backup.jsonl"))
    assert verify(into).ok


def take(database: Database, directory: Path) -> None:
    back_up(database, out=directory / "backup.jsonl", now=START)


def with_pods(database: Database, pods: int) -> Stepped:
    """Volumes that are known, and pods with two claims each that nobody has looked at yet."""
    volumes = [volume(f"pv-{number}-{leg}", "1Gi", f"n{number % 2}") for number in range(pods) for leg in range(2)]
    system = Stepped(database, [LOCAL, node("n0"), node("n1"), *volumes])
    system.settle()
    for number in range(pods):
        system.create(*(claim(f"c-{number}-{leg}", "1Gi") for leg in range(2)))
        system.create(pod(f"p-{number}", f"c-{number}-0", f"c-{number}-1"))
    return system


@pytest.mark.parametrize("steps", [0, 1])
def test_on_our_own_log_what_was_in_flight_goes_on_from_where_the_backup_has_it(
    sqlite: Database, copy: Database, tmp_path: Path, steps: int
) -> None:
    lost = with_pods(sqlite, 4)
    lost.system.catch_up(lost.now)
    lost.system.scheduler.step(lost.now)
    for _ in range(steps):
        lost.system.executor.step("prebind", lost.now)
    take(sqlite, tmp_path)
    lost.settle()
    carried(copy, tmp_path)
    report = recover(copy, owner="restored", now=START)
    assert [it.outcome for it in report.bindings] == [Recovered.RESUMED] * 4
    again = Stepped(copy, owner="again")
    again.settle()
    assert [again.node_of(f"p-{number}") is None for number in range(4)] == [False] * 4
    volumes = Counter(again.volume_of(f"c-{number}-{leg}") for number in range(4) for leg in range(2))
    assert (len(volumes), set(volumes.values())) == (8, {1})
    with copy.read() as connection:
        assert violations(connection, at_rest=True) == []
    assert verify(copy).ok


def test_a_deadline_that_passed_since_the_backup_rolls_its_binding_back(
    sqlite: Database, copy: Database, tmp_path: Path
) -> None:
    lost = with_pods(sqlite, 1)
    lost.plan_and_write()
    take(sqlite, tmp_path)
    carried(copy, tmp_path)
    report = recover(copy, owner="restored", now=START + 3_600 * SECOND)
    assert [it.outcome for it in report.bindings] == [Recovered.ROLLED_BACK]
    again = Stepped(copy, owner="again")
    again.now = START + 3_600 * SECOND
    again.settle()
    # Undone, and then placed again: it was only late.
    assert again.node_of("p-0") is not None
    with copy.read() as connection:
        assert violations(connection, at_rest=True) == []


class Restored(Scene):
    """The scene's cluster with another store: what is there has happened without us."""

    def __init__(self, before: Scene, database: Database) -> None:
        self.database, self.cluster, self.api = database, before.cluster, before.api
        self.now, self.legs = before.now, before.legs
        self.mirror = Mirror(database, self.cluster, actor="mirror-again")
        self.executor = Executor(database, self.cluster, "worker-again", lease=LEASE)


def test_what_the_cluster_has_completed_since_is_found_and_not_written_again(
    sqlite: Database, copy: Database, tmp_path: Path
) -> None:
    scene = Scene(sqlite, simulated(), {"data": "pv-1", "logs": "pv-2"}).plan()
    take(sqlite, tmp_path)
    scene.settle()
    scene.complete_all()
    scene.settle()
    assert scene.node_of_pod() == "n1"
    writes = [scene.writes(VOLUME, "pv-1"), scene.writes(VOLUME, "pv-2"), scene.writes(POD, "db/app")]
    carried(copy, tmp_path)
    again = Restored(scene, copy)
    assert [it.outcome for it in recover(copy, owner="r", now=again.now).bindings] == [Recovered.RESUMED]
    again.settle()
    assert again.binding().state == "committed"
    assert writes == [again.writes(VOLUME, "pv-1"), again.writes(VOLUME, "pv-2"), again.writes(POD, "db/app")]
    assert in_views(copy) == in_cluster(again.api)
    assert again.queued() == []


def test_volumes_that_were_given_away_since_are_not_given_again(
    sqlite: Database, copy: Database, tmp_path: Path
) -> None:
    """The lost store has rolled its binding back, and the volume went to another claim."""
    scene = Scene(sqlite, simulated(), {"data": "pv-1"}).plan()
    take(sqlite, tmp_path)
    scene.settle()
    scene.pass_deadline()
    scene.settle()
    assert (scene.binding().state, scene.claim_of("pv-1")) == ("rolled-back", None)
    scene.api.create(CLAIM, foreign_claim("other"))
    scene.api.create(POD, foreign_pod("rival", "other"))
    scene.take("pv-1", "other")
    scene.complete("other", "pv-1")
    carried(copy, tmp_path)
    again = Restored(scene, copy)
    recover(copy, owner="r", now=again.now)
    again.settle()
    assert again.claim_of("pv-1") == "other"
    assert not again.annotations(CLAIM, "db/data")
    assert again.binding().state == "rolled-back"
    assert in_views(copy) == in_cluster(again.api)


def test_what_a_binding_has_written_that_the_restored_store_never_knew_is_left_alone(
    sqlite: Database, copy: Database, tmp_path: Path
) -> None:
    """Unknown means unsafe: the stamp is of no binding of ours, so nothing is undone, and nobody else gets it."""
    scene = Scene(sqlite, simulated(), {"data": "pv-1"})
    take(sqlite, tmp_path)
    scene.plan().settle()
    assert scene.claim_of("pv-1") == "data"
    carried(copy, tmp_path)
    again = Restored(scene, copy)
    assert recover(copy, owner="r", now=again.now).bindings == []
    again.settle()
    assert again.claim_of("pv-1") == "data"
    assert again.queued() == []
    scene.complete_all()
    again.settle()
    assert in_views(copy) == in_cluster(again.api)
