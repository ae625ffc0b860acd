"""Looking at a simulated run: after every choice what holds at any moment, and in the end everything."""

from collections import Counter
from dataclasses import dataclass, field

from sqlalchemy import bindparam, func, select

from volsched.lab.simulation import invariants_at_rest
from volsched.lab.simulation.invariants_foreign import Truth
from volsched.lab.simulation.places import SimulatedPlace
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.reads.open_bindings import next_deadline
from volsched.questions.invariants import Lookout, Violation
from volsched.runtime.system import System

_stream = tables.events.c.stream
_DEEDS = select(func.count()).where(
    tables.events.c.position > bindparam("since"), ~_stream.like("attempt/%"), ~_stream.like("notice/%")
)
_bindings = tables.bindings
_PLANS = (
    select(_bindings.c.pod, func.count().label("plans"))
    .where(_bindings.c.planned_at >= bindparam("since"))
    .group_by(_bindings.c.pod, _bindings.c.pod_uid)
)
MOST_PLANS = 12
"""Of one pod, once nothing goes wrong any more: it may come to each node, and meet what is still under way."""
LATE_ABROAD = frozenset({1, 2, 4})
"""Invariants of which our views of a foreign cluster may be wrong until they have caught up; `truth` asks them."""


@dataclass(slots=True)
class RunObserver:
    database: Database
    place: SimulatedPlace
    lookout: Lookout = field(default_factory=Lookout)
    _truth: Truth | None = None
    _seen: tuple[int, int] = (-1, -1)
    """How many commits there were at the last look, and how far a foreign cluster was."""

    def __post_init__(self) -> None:
        if self.place.api is not None:
            self._truth = Truth(self.place.api)

    def position(self, commits: int) -> int:
        """Where the log ends."""
        if commits == self._seen[0]:
            return self.lookout.position
        with self.database.engine.connect() as connection:
            found: int = connection.exec_driver_sql("SELECT position FROM log_head").scalar_one()
        return found

    def look(self, commits: int) -> list[Violation]:
        """What holds at any moment, if anything was written since the last look."""
        seen = commits, self.place.version
        if seen == self._seen:
            return []
        self._seen = seen
        with self.database.read() as connection:
            found = self.lookout.look(connection, at_rest=False)
            found += invariants_at_rest.overtaken(connection, self.lookout.states)
        if self._truth is not None:
            found = [it for it in found if it.invariant not in LATE_ABROAD]
            found += self._truth.look(self.lookout.states, self.place.theirs)
        return found

    def has_moved(self, since: int) -> bool:
        """By what is written; that a pod was tried again in vain is no sign of anything."""
        with self.database.read() as connection:
            return bool(connection.execute(_DEEDS, {"since": since}).scalar_one())

    def too_many_plans(self, since: int) -> list[Violation]:
        """3: what refuses a pod does not keep it from a node that would take it."""
        with self.database.read() as connection:
            rows = connection.execute(_PLANS, {"since": since}).all()
        return [
            Violation(3, f"pod/{row.pod} was planned {row.plans} times after the last fault")
            for row in rows
            if row.plans > MOST_PLANS
        ]

    def deadline(self) -> int | None:
        """Of the binding that is the first to run out of time."""
        with self.database.read() as connection:
            return next_deadline(connection)

    def look_at_rest(self, system: System | None, now: int) -> list[Violation]:
        with self.database.read() as connection:
            found = self.lookout.look(connection, at_rest=True)
        found += invariants_at_rest.integrity(self.database)
        fresh = invariants_at_rest.fresh_picture(self.database)
        if system is not None:
            found += invariants_at_rest.same_picture(fresh, system.picture)
        found += invariants_at_rest.no_pod_is_lost(fresh, now)
        if self.place.api is not None:
            found += invariants_at_rest.mirrored(self.database, self.place.api)
        return found

    def ends(self) -> Counter[str]:
        """How bindings have ended."""
        bindings = tables.bindings
        with self.database.read() as connection:
            asked = select(bindings.c.state, func.count()).group_by(bindings.c.state)
            return Counter({f"bindings {state}": number for state, number in connection.execute(asked)})
