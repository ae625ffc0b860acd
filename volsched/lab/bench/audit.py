"""The cost of every audit question after a long history, beside the cheapest possible query.

Each question is asked about many objects and moments, spread over the history; a page has the command's default
number of items. The baseline reads one event by its position: the cost of a statement and a row on this machine.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from io import StringIO
from typing import Any

from sqlalchemy import Connection

from volsched.lab.bench.figure_history import SizeAxis
from volsched.lab.bench.stories import FEWEST_VOLUMES, NODES, Story, ended_stories
from volsched.log.database import Database
from volsched.log.reads.event_audit import Window, position_since, window
from volsched.log.reads.tail import event, read_head, state_as_of
from volsched.log.retention.export import events_of, manifest_of, write_jsonl
from volsched.questions.audit import decisions
from volsched.questions.audit.answers import Answer
from volsched.questions.audit.orphans import orphans_of
from volsched.questions.explain import stored_decisions
from volsched.questions.history import history, volume_history
from volsched.questions.history.history import world_diff

Clock = Callable[[], float]
ASKED = 20
PAGE = 50
AS_OF_MS, PAGE_MS = 5.0, 50.0
EXPORTED = 1_000
HOT = "volume-000000"


@dataclass(frozen=True, slots=True)
class AuditRow:
    question: str
    engine: str
    events: int
    median_ms: float
    worst_ms: float
    target_ms: float | None
    """None: no target, because the answer is as long as the requested range."""
    baseline_ms: float
    over_events: float | None = None
    """How the median grows with the history; 0 where it does not depend on its length."""

    @property
    def ratio(self) -> float:
        return self.median_ms / self.baseline_ms

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


AUDIT_AXIS: SizeAxis[AuditRow] = SizeAxis(
    column="over_events",
    size=lambda row: row.events,
    alike=lambda row: (row.question, row.engine),
    figure=lambda row: row.median_ms,
)


@dataclass(frozen=True, slots=True)
class _Round:
    """A round of questions: other objects and another moment each time."""

    connection: Connection
    turn: int
    head: int
    all: Window

    @property
    def position(self) -> int:
        return 1 + (self.head * self.turn) // ASKED

    @property
    def story(self) -> Story:
        """A pod that has ended."""
        number = (max(ended_stories(self.head), 0) * (2 * self.turn + 1)) // (2 * ASKED)
        return Story(number, f"volume-{number % FEWEST_VOLUMES:06}")

    @property
    def since(self) -> Window:
        """A window of everything written from some time on."""
        begin = window(self.connection, first=self.position).since
        return window(self.connection, first=position_since(self.connection, begin))


Ask = Callable[[_Round], object]
QUESTIONS: tuple[tuple[str, float | None, Ask], ...] = (
    ("one object as of a position", AS_OF_MS, lambda it: _volume_as_of(it, it.story.volume)),
    ("one object as of a position, long stream", AS_OF_MS, lambda it: _volume_as_of(it, HOT)),
    ("what was PV X bound to at T", AS_OF_MS, lambda it: _bound_at(it, it.story.volume)),
    ("what was PV X bound to at T, long stream", AS_OF_MS, lambda it: _bound_at(it, HOT)),
    ("timeline of an object", PAGE_MS, lambda it: _history(it, f"volume/{it.story.volume}")),
    ("timeline of an object, long stream", PAGE_MS, lambda it: _history(it, f"volume/{HOT}")),
    ("claims that PV X served", PAGE_MS, lambda it: _claims_of(it, it.story.volume)),
    ("claims that PV X served, long stream", PAGE_MS, lambda it: _claims_of(it, HOT)),
    ("attempts of a pod", PAGE_MS, lambda it: _attempts(it)),
    (
        "why node N and not M",
        PAGE_MS,
        lambda it: stored_decisions.why(it.connection, it.story.id, node="node-002"),
    ),
    ("decisions touching node N", PAGE_MS, lambda it: _on_node(it, it.all)),
    ("decisions touching node N, from T on", PAGE_MS, lambda it: _on_node(it, it.since)),
    ("who changed it", PAGE_MS, lambda it: _who(it)),
    ("rolled back, first failing step", PAGE_MS, lambda it: _rollbacks(it)),
    ("in flight now", PAGE_MS, lambda it: _in_flight(it)),
    ("in flight at T", PAGE_MS, lambda it: _was_in_flight(it)),
    ("difference of the world, from T to now", PAGE_MS, lambda it: _diff(it, None)),
    ("difference of all volumes, from T to now", PAGE_MS, lambda it: _diff(it, "volume")),
    ("causation tree of an event", PAGE_MS, lambda it: history.causation(it.connection, it.position, limit=200)),
    (
        "everything of a binding",
        PAGE_MS,
        lambda it: history.causes_of_binding(it.connection, it.story.id, limit=200),
    ),
    (
        f"time to bound, last {decisions.LAST_BINDINGS:,} bindings",
        PAGE_MS,
        lambda it: decisions.latency(it.connection, it.all, limit=decisions.LAST_BINDINGS),
    ),
    ("manual interventions", PAGE_MS, lambda it: _interventions(it)),
    ("orphans", None, lambda it: orphans_of(it.connection, now=2**60)),
    (f"export of {EXPORTED:,} events", None, lambda it: _export(it)),
)


def bench_audit(database: Database, *, clock: Clock) -> Iterator[AuditRow]:
    """A row per question, on a store that `stories.fill_stories` has filled."""
    _gather_statistics(database)
    with database.read() as connection:
        head, everything = read_head(connection).position, window(connection)
        rounds = [_Round(connection, turn, head, everything) for turn in range(ASKED)]
        baseline = sorted(_time(lambda it: event(it.connection, it.position), it, clock) for it in rounds)
        for question, target, ask in QUESTIONS:
            times = sorted(_time(ask, it, clock) for it in rounds)
            yield AuditRow(
                question,
                database.engine.dialect.name,
                head,
                median_ms=times[ASKED // 2] * 1000,
                worst_ms=times[-1] * 1000,
                target_ms=target,
                baseline_ms=baseline[ASKED // 2] * 1000,
            )


def _gather_statistics(database: Database) -> None:
    """PostgreSQL does this itself while a store grows (autovacuum); one filled at once has no statistics yet."""
    if database.engine.dialect.name == "postgresql":
        with database.migrating() as connection:
            connection.exec_driver_sql("ANALYZE")


def _time(ask: Ask, round_: _Round, clock: Clock) -> float:
    started = clock()
    ask(round_)
    return clock() - started


def _volume_as_of(round_: _Round, name: str) -> object:
    return state_as_of(round_.connection, f"volume/{name}", position=max(round_.position, round_.head // ASKED))


def _bound_at(round_: _Round, name: str) -> object:
    return volume_history.bound_at(round_.connection, name, position=max(round_.position, round_.head // ASKED))


def _history(round_: _Round, stream: str) -> Answer:
    return history.history(round_.connection, stream, round_.all, after=None, limit=100)


def _who(round_: _Round) -> Answer:
    return history.changes(round_.connection, f"volume/{round_.story.volume}", round_.all, after=None, limit=PAGE)


def _claims_of(round_: _Round, name: str) -> Answer:
    return volume_history.claims_of(round_.connection, name, round_.all, after=None, limit=PAGE)


def _attempts(round_: _Round) -> Answer:
    return stored_decisions.attempts_of(round_.connection, round_.story.key, round_.all, after=None, limit=PAGE)


def _on_node(round_: _Round, within: Window) -> Answer:
    node = f"node-{round_.turn % NODES:03}"
    return decisions.on_node(round_.connection, node, within, after=None, limit=PAGE)


def _rollbacks(round_: _Round) -> Answer:
    return decisions.rollbacks(
        round_.connection, window(round_.connection, last=round_.position), after=None, limit=PAGE
    )


def _in_flight(round_: _Round) -> Answer:
    return decisions.in_flight(round_.connection, now=2**60, older_than=0, after=None, limit=PAGE)


def _was_in_flight(round_: _Round) -> Answer:
    then = window(round_.connection, last=round_.position)
    return decisions.in_flight_at_end(round_.connection, then, older_than=0, after=None, limit=PAGE)


def _diff(round_: _Round, noun: str | None) -> Answer:
    within = window(round_.connection, first=max(round_.position, round_.head // ASKED))
    return world_diff(round_.connection, within, noun=noun, after=None, limit=PAGE)


def _interventions(round_: _Round) -> Answer:
    return history.interventions(
        round_.connection, window(round_.connection, last=round_.position), after=None, limit=PAGE
    )


def _export(round_: _Round) -> None:
    first = min(round_.position, round_.head - EXPORTED)
    manifest = manifest_of(round_.connection, first=first, last=first + EXPORTED - 1, now=0)
    write_jsonl(StringIO(), manifest, events_of(round_.connection, manifest))
