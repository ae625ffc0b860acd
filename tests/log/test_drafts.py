"""What is decided before the head is locked: it holds only if nothing that it has read was changed meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from sqlalchemy import select

from tests.support.armed_faults import armed, once
from tests.support.store_samples import NOW, append, change_volume, create_volume, must, plan, run
from volsched.kube.manifest import Manifest, metadata
from volsched.log import tables
from volsched.log.commands import Command, ConflictError, DeposedError, Done, EffectDone, Outcome, Scan, version_of
from volsched.log.database import LONG_ALONE, Database, open_database
from volsched.log.effects import claim
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import NOTHING, Decision, ObjectState, States
from volsched.log.integrity.verify import verify
from volsched.log.leases import acquire
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.objects.object_write import Author, ObjectWrite
from volsched.runtime.clock import rfc3339

LEASE = 10_000_000


@pytest.fixture
def other(database: Database) -> Iterator[Database]:
    """Another process on the same store."""
    other = open_database(database.engine.url.render_as_string(hide_password=False))
    yield other
    other.close()


@pytest.fixture
def drafting(database: Database) -> Database:
    database.others.drafts = True
    return database


def counted(command: Command) -> tuple[Command, list[States]]:
    """The command, and what it was decided on each time."""
    times: list[States] = []

    def decide(states: States) -> Decision:
        times.append(dict(states))
        return command.decide(states)

    return replace(command, decide=decide), times


def meanwhile(database: Database, *commands: Command, write: Callable[[], object]) -> list[Outcome]:
    """Carry out the commands; `write` happens when all is decided and the head is not locked yet."""

    def act() -> None:
        write()

    with armed(once("commit.drafted", act)):
        return run(database, *commands)


def annotate(name: str) -> Command:
    """Notes the version that the volume has, as the rules do in claimRefs, legs and assumptions."""

    def decide(states: States) -> Decision:
        state = states[f"volume/{name}"]
        assert isinstance(state, ObjectState)
        patch = {"metadata": {"annotations": {"seen": str(state.rv), "seen-as": f"rv-{state.rv}/{state.rv}"}}}
        event = NewEvent(stream=f"volume/{name}", type="VolumeChanged", data={"patch": patch}, cause=state.rv)
        return Decision(events=(event,), result={"rv": state.rv, "state": state})

    return Command(actor="test", streams=(f"volume/{name}",), decide=decide)


def test_what_nobody_has_touched_is_decided_once_and_placed_behind_what_others_wrote(
    drafting: Database, other: Database
) -> None:
    first, times = counted(create_volume("a"))
    outcomes = meanwhile(
        drafting, first, annotate("a"), plan("b1", "a"),
        write=lambda: must(other, create_volume("theirs"), create_volume("theirs-too")),
    )  # fmt: skip
    assert len(times) == 1
    assert [it.position for it in outcomes if isinstance(it, Done)] == [3, 4, 6]
    assert isinstance(outcomes[1], Done)
    assert (outcomes[1].result["rv"], outcomes[1].result["state"].rv) == (3, 3)
    with drafting.read() as connection:
        events = connection.execute(select(tables.events).order_by(tables.events.c.position)).all()
        volume = connection.execute(select(tables.volumes).where(tables.volumes.c.key == "a")).one()
        queued = connection.execute(select(tables.effects)).one()
    assert [it.stream for it in events] == [
        "volume/theirs", "volume/theirs-too", "volume/a", "volume/a", "binding/b1", "volume/a"
    ]  # fmt: skip
    noted = {"seen": "3", "seen-as": "rv-3/3"}
    assert orjson.loads(events[3].data) == {"patch": {"metadata": {"annotations": noted}}}
    assert (events[3].cause, orjson.loads(events[4].data)["decided_at"], volume.rv, volume.assumed_rv) == (
        3,
        4,
        4,
        4,
    )
    assert orjson.loads(volume.manifest)["metadata"]["annotations"] == noted
    assert (queued.position, queued.seq) == (6, 0)
    assert verify(drafting).findings == []
    # What this process remembers of the streams is what the store has.
    (changed,) = must(
        drafting, change_volume("a", {"spec": {"storageClassName": "slow"}}, objects={"volume/a": 4})
    )
    assert changed.position == 7


def test_what_others_have_changed_is_decided_again(drafting: Database, other: Database) -> None:
    must(drafting, create_volume("a"), create_volume("b"))
    first, times = counted(annotate("a"))
    outcomes = meanwhile(
        drafting, first, annotate("b"),
        write=lambda: must(other, change_volume("a", {"spec": {"storageClassName": "slow"}})),
    )  # fmt: skip
    assert len(times) == 2
    assert [it.result["rv"] for it in outcomes if isinstance(it, Done)] == [3, 2]
    assert verify(drafting).findings == []


def test_a_conflict_in_the_draft_names_positions_of_the_log(drafting: Database, other: Database) -> None:
    first = create_volume("a")
    late = create_volume("b", objects={"volume/a": 1})
    _, refused = meanwhile(drafting, first, late, write=lambda: must(other, create_volume("theirs")))
    assert isinstance(refused, ConflictError)
    assert (str(refused), refused.wanted, refused.have) == (
        "volume/a was changed by somebody else: it is at version 2, not at 1", "1", "2"
    )  # fmt: skip


def label(volume: str, value: str) -> ObjectWrite:
    """A write as the API makes it: the object as it then is, with this label."""

    def changed(manifest: Manifest) -> dict[str, Any]:
        return {**manifest, "metadata": {**metadata(manifest), "labels": {"tier": value}}}

    return door.patch("PersistentVolume", volume, changed, Author("user", rfc3339(NOW)))


def answers(database: Database, writes: Sequence[ObjectWrite]) -> list[Any]:
    outcomes = run(database, *[write.command for write in writes])
    return [
        metadata(write.written(outcome).manifest)["resourceVersion"] if isinstance(outcome, Done) else outcome
        for write, outcome in zip(writes, outcomes, strict=True)
    ]


def test_an_answer_has_the_versions_of_the_log_also_where_a_write_changed_nothing(drafting: Database) -> None:
    must(drafting, create_volume("a"))
    same = [label("a", "gold"), label("a", "gold"), label("a", "silver"), label("a", "silver")]
    assert answers(drafting, same) == ["2", "2", "3", "3"]


def test_a_position_of_one_draft_is_none_in_the_next(drafting: Database) -> None:
    must(drafting, create_volume("a"))
    seen: list[int] = []

    def look(states: States) -> Decision:
        seen.append(version_of(states["volume/a"]))
        return NOTHING

    for value in ("gold", "silver"):
        run(drafting, label("a", value).command, Command(actor="test", streams=("volume/a",), decide=look))
    first, second = seen
    assert len({2, 3, first, second}) == 4
    late = create_volume("b", objects={"volume/a": second})
    assert [isinstance(it, ConflictError) for it in run(drafting, label("a", "iron").command, late)] == [
        False,
        True,
    ]


def test_a_long_number_of_a_user_is_none_of_a_draft(drafting: Database) -> None:
    must(drafting, create_volume("a"))
    largest = 2**63 - 1
    long = Decision(result={"number": largest, "text": f"{largest}"}, basis=[largest, -largest, True])
    command = Command(actor="test", streams=("volume/a",), decide=lambda _: long)
    (done,) = run(drafting, command)
    assert isinstance(done, Done)
    assert (done.result, done.basis) == (long.result, long.basis)


def test_a_scan_covers_what_others_write_until_the_lock(drafting: Database, other: Database) -> None:
    must(drafting, create_volume("a"))

    def outdated(event: Any) -> str | None:
        return f"{event.stream} came" if event.stream == "volume/theirs" else None

    for concerns, why in ((None, "decided at 1, but at 2 volume/theirs came"), (lambda _: False, None)):
        first = create_volume(f"of-{why}", actor="me", scan=Scan(1, outdated, concerns=concerns))
        (outcome,) = meanwhile(
            drafting, first, write=lambda: run(other, create_volume("theirs", objects={"volume/theirs": 0}))
        )
        assert (str(outcome) if why else None) == why
        assert isinstance(outcome, ConflictError if why else Done)


def test_a_repeat_that_others_carried_out_meanwhile_gets_their_result(drafting: Database, other: Database) -> None:
    first = create_volume("a", key="once")
    (outcome,) = meanwhile(drafting, first, write=lambda: must(other, create_volume("a", key="once")))
    assert outcome == Done(position=1, events=0, result={}, repeated=True)


def test_a_lease_and_a_fence_that_are_lost_meanwhile_count(drafting: Database, other: Database) -> None:
    mine = acquire(drafting, name="controller", holder="me", now=NOW, ttl=LEASE)
    assert mine is not None
    must(drafting, create_volume("disk"), plan("b1", "disk"))
    (effect,) = claim(drafting, queue="prebind", owner="me", now=NOW, lease_for=LEASE, limit=1)
    done = EffectDone(key=effect.key, fence=effect.fence, outcome="done")
    led, fenced = create_volume("led", lease=mine.proof), create_volume("fenced", effect=done)
    after = NOW + 3 * LEASE

    def take_both() -> None:
        assert acquire(other, name="controller", holder="they", now=after, ttl=LEASE) is not None
        assert claim(other, queue="prebind", owner="they", now=after, lease_for=LEASE, limit=1) != []

    outcomes = meanwhile(drafting, led, fenced, create_volume("free"), write=take_both)
    assert [type(it) for it in outcomes] == [DeposedError, DeposedError, Done]


def test_a_binding_that_others_have_planned_meanwhile_is_found(drafting: Database, other: Database) -> None:
    """A change of its node has a reaction in a binding that was not there when the change was decided."""
    must(drafting, create_volume("a"))
    found: list[str] = []

    def react(binding: str, _: States) -> Decision:
        found.append(binding)
        return NOTHING

    def plan_one() -> None:
        must(other, plan("b1", "a"))

    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "uid-n1"}}
    made = append(NewEvent(stream="node/n1", type="NodeCreated", data={"patch": manifest}))
    with armed(once("commit.drafted", plan_one)):
        execute(drafting, [made], now=NOW, react=react)
    assert found == ["b1"]


def test_drafts_are_made_while_other_processes_write(database: Database, other: Database) -> None:
    many = [create_volume(f"v{number}") for number in range(10)]
    drafted: list[str] = []
    with armed(drafted.append):
        must(database, *many[:4])
        must(other, *many[4:6])
        must(database, many[6])
        assert "commit.drafted" not in drafted
        must(database, *[change_volume(f"v{number}", {"spec": {}}) for number in range(4)])
        assert drafted.count("commit.drafted") == 1
        for _ in range(LONG_ALONE):
            must(database, change_volume("v0", {"spec": {}}))
        must(database, *many[7:10], change_volume("v0", {"spec": {}}))
    assert drafted.count("commit.drafted") == 1
