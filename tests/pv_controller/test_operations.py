"""Long operations: one of a name at a time, with back-off, stepped, and nothing destroyed on old news."""

from collections.abc import Callable, Generator
from typing import Any

import pytest

from tests.support.clusters import START, volume
from tests.support.storage import VOLUME, Scripted
from volsched.cluster.port import whole
from volsched.log.commands import ConflictError
from volsched.log.database import Database
from volsched.log.leases import acquire
from volsched.objects.rules.object_events import AlreadyExistsError, NotFoundError
from volsched.pv_controller.operations import LONGEST_BACKOFF, Key, NoticeThrottle, Operations
from volsched.pv_controller.rules import (
    Create,
    Delete,
    DeleteAsset,
    LiveGet,
    Notice,
    Pause,
    PluginError,
    StartOperation,
    SyncError,
    Update,
)
from volsched.runtime.clock import MILLISECOND, SECOND
from volsched.runtime.system import local_cluster

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
KEY = ("PersistentVolume", "disk")
Story = Generator[Any, Any, None]


class Stage:
    """Operations without a controller: what they want looked at again is only noted."""

    def __init__(self, database: Database) -> None:
        self.database, self.now = database, START
        self.provisioner = Scripted({})
        self.again: list[tuple[Key, int]] = []
        self.in_doubt: list[str] = []
        self.log: list[Any] = []
        self.before: Callable[[], None] | None = None
        ids = iter(range(1_000))
        self.operations = Operations(
            database,
            "controller",
            {Scripted.plugin.name: self.provisioner},
            new_uid=lambda: f"uid-{next(ids)}",
            throttle=NoticeThrottle(),
            sync_later=lambda key, at: self.again.append((key, at)),
            in_doubt=self.in_doubt.append,
        )
        lease = acquire(database, name="controller", holder="us", now=self.now, ttl=60 * SECOND)
        assert lease is not None
        self.proof = lease.proof
        self.cluster = local_cluster(database, clock=lambda: self.now, new_uid=lambda: f"u{next(ids)}")

    def start(self, steps: Story, name: str = "op") -> "Stage":
        self.operations.start(StartOperation(name, steps), KEY, self.now)
        return self

    def step(self, *, after: int = 0) -> int:
        self.now += after
        return self.operations.step(self.now, self.proof)

    def asking(self, *requests: Any) -> Story:
        """Ask one after the other, and note every answer or error."""
        for request in requests:
            try:
                self.log.append((yield request))
            except Exception as error:
                self.log.append(type(error))


@pytest.fixture
def stage(database: Database) -> Stage:
    return Stage(database)


def failing() -> Story:
    yield Pause(0)
    raise SyncError("again")


def test_a_second_start_of_a_name_is_dropped_and_looked_at_later(stage: Stage) -> None:
    stage.start(stage.asking(Pause(5))).step()
    stage.start(stage.asking("never"))
    stage.step(after=4 * SECOND)
    assert (stage.log, stage.again, stage.operations.next_due()) == ([], [], START + 5 * SECOND)
    stage.step(after=SECOND)
    assert (stage.log, stage.again, stage.operations.next_due()) == ([None], [(KEY, stage.now)], None)


def test_after_an_error_the_name_is_refused_for_longer_and_longer(stage: Stage) -> None:
    waits = []
    for _ in range(10):
        stage.start(failing()).step()
        stage.step()
        waits.append(stage.again[-1][1] - stage.now)
        stage.now = stage.again[-1][1]
    assert waits == [500 * MILLISECOND << place for place in range(8)] + [LONGEST_BACKOFF] * 2


def test_while_it_backs_off_it_is_not_started_and_success_forgets_the_failures(stage: Stage) -> None:
    stage.start(failing()).step()
    stage.step()
    stage.start(stage.asking(Pause(0))).step()
    assert (stage.log, stage.again) == ([], [(KEY, START + 500 * MILLISECOND)] * 2)
    stage.now = START + 500 * MILLISECOND
    stage.start(stage.asking()).step()
    stage.start(failing()).step()
    stage.step()
    assert stage.again[-1] == (KEY, stage.now + 500 * MILLISECOND)


def test_what_is_gone_is_not_backed_off_for(stage: Stage) -> None:
    stage.start(failing()).step()
    stage.step()
    stage.operations.forget(KEY)
    stage.start(stage.asking(Pause(0))).step()
    stage.step()
    assert stage.log == [None]


def test_every_write_is_conditional_and_its_error_is_the_operations_to_judge(stage: Stage) -> None:
    disk = volume("disk", "5Gi", "n1")
    stage.start(stage.asking(Create(VOLUME, disk), Create(VOLUME, disk), LiveGet(VOLUME, "none"))).step()
    made, again, none = stage.log
    assert (made["metadata"]["uid"], again, none) == ("uid-0", AlreadyExistsError, None)
    stage.log.clear()
    changed = {**made, "metadata": {**made["metadata"], "labels": {"seen": "1"}}}
    stage.start(stage.asking(Update(VOLUME, changed), Update(VOLUME, changed))).step()
    held, stale = stage.log
    assert (held.meta.labels, stale) == ({"seen": "1"}, ConflictError)
    assert int(held.meta.resource_version) > int(made["metadata"]["resourceVersion"])
    stage.log.clear()
    stage.start(stage.asking(Delete(VOLUME, "disk", "another"), Delete(VOLUME, "gone", "x"))).step()
    assert stage.log == [ConflictError, NotFoundError]


def test_operations_share_a_transaction_and_fail_alone(stage: Stage) -> None:
    names = [f"disk-{number}" for number in range(3)]
    for name in (*names, "disk-0"):
        stage.start(stage.asking(Create(VOLUME, volume(name, "5Gi", "n1"))), name=f"op-{len(stage.log)}-{name}")
    for number, name in enumerate(names):
        stage.start(stage.asking(Create(VOLUME, volume(name, "5Gi", "n1"))), name=f"second-{number}")
    stage.step()
    assert sum(it is AlreadyExistsError for it in stage.log) == 3


def destroying(stage: Stage) -> Story:
    live = yield LiveGet(VOLUME, "disk")
    if stage.before is not None:
        stage.before()
    try:
        yield DeleteAsset(Scripted.plugin.name, live)
    except PluginError as error:
        stage.log.append(error)


def test_nothing_is_destroyed_that_somebody_has_touched_since_it_was_looked_at(stage: Stage) -> None:
    made = stage.cluster.create(VOLUME, volume("disk", "5Gi", "n1"))

    def touched() -> None:
        stage.cluster.update(VOLUME, {**made, "metadata": {**made["metadata"], "labels": {"mine": "yes"}}})

    stage.before = touched
    stage.start(destroying(stage)).step()
    assert (stage.provisioner.calls, stage.log, stage.again) == ([], [], [(KEY, stage.now)])
    stage.before = None
    stage.start(destroying(stage)).step()
    assert stage.provisioner.calls == ["delete disk"]


def test_one_who_is_deposed_destroys_nothing(stage: Stage) -> None:
    stage.cluster.create(VOLUME, volume("disk", "5Gi", "n1"))

    def deposed() -> None:
        acquire(stage.database, name="controller", holder="them", now=stage.now + 90 * SECOND, ttl=SECOND)

    stage.before = deposed
    stage.start(destroying(stage)).step()
    assert (stage.provisioner.calls, stage.operations.next_due()) == ([], None)


def test_a_notice_is_written_once(stage: Stage) -> None:
    told = Notice(VOLUME, "disk", "uid", "Normal", "Reason", "message")
    for number in range(2):
        stage.start(stage.asking(told), name=f"op-{number}").step()
    (event,) = whole(stage.cluster.list("Event")).objects
    assert (event["reason"], event["count"]) == ("Reason", 1)


def test_whoever_leads_next_starts_from_nothing(stage: Stage) -> None:
    stage.start(stage.asking(Pause(5))).step()
    stage.operations.clear()
    assert (stage.step(after=10 * SECOND), stage.log, stage.operations.next_due()) == (0, [], None)
