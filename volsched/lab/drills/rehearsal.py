"""A rehearsed recovery: a copy of a store, all its processes gone, and a new one that resumes what was in flight.

Only the copy is written. The store itself is opened read-only, which the database enforces. No provisioner, node
agent or foreign cluster takes part: a rehearsal must not delete a directory. So a binding that waits for storage
still waits at the end, and is reported as such.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import event, select

from volsched.binding.recovery import Recovered, RecoveryReport, recover
from volsched.binding.rules.phases import LegPhase, Phase
from volsched.lab.drills.report import DrillReport, count_double_binds, count_leaks
from volsched.lab.simulation.invariants import texts
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.durable_files import lines_of_file
from volsched.log.integrity.verify import verify
from volsched.log.migrations import scratch_store
from volsched.log.reads.open_bindings import open_bindings
from volsched.log.reads.tail import read_head
from volsched.log.retention.backup import back_up, restore
from volsched.questions.invariants import Violation, violations
from volsched.runtime.clock import MILLISECOND, SECOND
from volsched.runtime.system import System, embedded

OWNER = "rehearsal"
ASKED = (1, 2, 4, 5, 6, 14)
MOST_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class Copy:
    database: Database
    taken_at: int
    """When all processes of the store are assumed to have died."""


@dataclass(frozen=True, slots=True)
class Rehearsed:
    report: DrillReport
    recovery: RecoveryReport
    """The report of the recovery, binding by binding."""
    ends: Mapping[str, str]
    """Binding → its phase at the end."""


def read_only(database: Database) -> None:
    """From here on the database itself refuses all our writes."""
    statement = {"sqlite": "PRAGMA query_only = ON"}.get(
        database.engine.dialect.name, "SET default_transaction_read_only = on"
    )

    @event.listens_for(database.engine, "connect")
    def _connected(raw: Any, _record: object) -> None:
        raw.execute(statement)
        raw.commit()

    # Earlier connections lack the setting.
    database.engine.dispose()


@contextmanager
def copied(database: Database, *, now: int) -> Iterator[Copy]:
    """A copy of a store at one moment, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="volsched-rehearsal-") as directory:
        file = Path(directory) / "copy.jsonl"
        back_up(database, out=file, now=now)
        with copied_from(lines_of_file(file)) as copy:
            yield copy


@contextmanager
def copied_from(lines: Iterable[str]) -> Iterator[Copy]:
    """The store in a backup, for as long as it is read."""
    with scratch_store() as database:
        yield Copy(database, restore(database, lines).taken_at)


def rehearse(copied: Copy, *, horizon: int = 120 * SECOND) -> Rehearsed:
    """Recover the copy and continue for so long in its own time: what would happen, and how long it takes here."""
    copy = copied.database
    with copy.read() as connection:
        # Not the time of the log's last write: deadlines may have passed since, and recovery would act on them.
        began_at, in_flight = max(read_head(connection).at, copied.taken_at), frozenset(open_bindings(connection))
    started = time.monotonic()
    recovery = recover(copy, owner=OWNER, now=began_at)
    took = time.monotonic() - started
    times = _go_on(copy, in_flight, began_at, horizon, started)
    wrong = _violations(copy)
    phases, retained = _ends(copy, in_flight)
    ends = Counter(phases.values())
    open_ = len(in_flight) - ends[Phase.COMMITTED] - ends[Phase.ROLLED_BACK]
    report = DrillReport(
        drill="rehearse",
        about="recovery on a copy; provisioners, node agents and foreign clusters take no part",
        in_flight=len(in_flight),
        resumed=ends[Phase.COMMITTED],
        rolled_back=ends[Phase.ROLLED_BACK],
        retained=retained,
        double_binds=count_double_binds(wrong),
        leaked=count_leaks(wrong),
        lost_pods=_pods_without_node(copy, in_flight),
        recovery_ms=times,
        checked_invariants=ASKED,
        violations=wrong,
        facts={
            "still open after its own time": f"{open_:,} after {horizon // SECOND:,} s",
            "need a human": f"{recovery.count(Recovered.NEEDS_HUMAN):,}",
            "recovery itself took": f"{took * 1000:,.0f} ms on this machine, on SQLite",
        },
    )
    return Rehearsed(report, recovery, phases)


def _go_on(copy: Database, in_flight: frozenset[str], began_at: int, horizon: int, started: float) -> list[float]:
    """The time until each binding had ended, on this machine; those that have not are left out."""
    numbers = iter(range(1, 1 << 30))
    now = began_at
    system: System = embedded(copy, owner=OWNER, clock=lambda: now, new_id=lambda: f"rehearsed-{next(numbers)}")
    times: list[float] = []
    left = set(in_flight)
    for _ in range(MOST_STEPS):
        progress = system.step(now)
        with copy.read() as connection:
            ended = left - set(open_bindings(connection))
        times += [1000 * (time.monotonic() - started)] * len(ended)
        left -= ended
        due = now + MILLISECOND if progress else system.next_due()
        if not left or due is None or due > began_at + horizon:
            break
        now = max(now + MILLISECOND, due)
    return times


def _violations(copy: Database) -> list[str]:
    with copy.read() as connection:
        found = violations(connection, at_rest=False)
    return texts(found + [Violation(5, str(it)) for it in verify(copy).findings])


def _pods_without_node(copy: Database, in_flight: frozenset[str]) -> int:
    """Pods with a committed binding but no node."""
    bindings, pods = tables.bindings, tables.pods
    bound = select(pods.c.key).where(pods.c.node.is_not(None))
    query = select(bindings.c.pod).where(
        copy.dialect.among(bindings.c.id, in_flight),
        bindings.c.state == Phase.COMMITTED,
        bindings.c.pod.in_(select(pods.c.key)),
        bindings.c.pod.not_in(bound),
    )
    with copy.read() as connection:
        return len(connection.execute(query).all())


def _ends(copy: Database, in_flight: frozenset[str]) -> tuple[dict[str, str], Counter[str]]:
    """How they ended, and why legs were retained."""
    bindings, legs = tables.bindings, tables.binding_legs
    among = copy.dialect.among
    with copy.read() as connection:
        found = connection.execute(select(bindings.c.id, bindings.c.state).where(among(bindings.c.id, in_flight)))
        ended = {row.id: str(row.state) for row in found}
        asked = select(legs.c.reason).where(among(legs.c.binding, in_flight), legs.c.state == LegPhase.RETAINED)
        return ended, Counter(reason or "no reason kept" for reason in connection.execute(asked).scalars())
