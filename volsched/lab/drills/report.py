"""What a drill shows: one value for simulations and for processes that are really killed, as a table or as JSON.

A drill is passed if every figure that must be nought is nought, and if it could have been otherwise: a fault that
met nothing is inconclusive. Kinds of crash are counted apart and never summed.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from volsched.lab.drills.timeline import TIMELINE, DrillTimeline

INVARIANTS: Mapping[int, str] = {
    1: "a volume and a claim have one owner, and each other",
    2: "nothing carries a stamp that nobody answers for",
    3: "every binding ends, no pod and no work is left behind",
    4: "a volume with data is never unbound",
    5: "views, index and mirror are what the log says",
    6: "positions and versions are dense, the chain holds",
    7: "nothing breaks by itself, a repeat changes nothing",
    8: "a committed pod has all its volumes in reach",
    9: "the index decides as walking all nodes does",
    14: "no capacity is promised twice",
}
"""Numbers of invariants (docs/log.md); a drill says which of them it asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillReport:
    drill: str
    about: str = ""
    faults: Mapping[str, int] = field(default_factory=dict)
    """What was broken on purpose, by kind."""
    in_flight: int = 0
    """Bindings that were open at the fault."""
    resumed: int = 0
    """Of these, those that ended committed."""
    rolled_back: int = 0
    retained: Mapping[str, int] = field(default_factory=dict)
    """Legs that were left as they are, by reason."""
    double_binds: int = 0
    leaked: int = 0
    """Reservations, assumptions and queued work of bindings that have ended."""
    lost_pods: int = 0
    recovery_ms: Sequence[float] = ()
    """From the first fault that met it until each binding that was in flight had ended."""
    asked: Sequence[int] = ()
    violations: Sequence[str] = ()
    """As told, each beginning with the number of its invariant."""
    inconclusive: str = ""
    """Why it proves nothing, where it does not."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Whatever else is worth knowing: engine, seeds, rates."""

    @property
    def failed(self) -> bool:
        return bool(self.violations or self.double_binds or self.leaked or self.lost_pods)

    @property
    def passed(self) -> bool:
        return not self.failed and not self.inconclusive

    @property
    def verdict(self) -> str:
        return "FAILED" if self.failed else f"INCONCLUSIVE: {self.inconclusive}" if self.inconclusive else "passed"

    def percentile(self, share: float) -> float | None:
        """The smallest time within which that share of bindings had ended; None where there was none."""
        times = sorted(self.recovery_ms)
        return times[max(ceil(share * len(times)) - 1, 0)] if times else None

    def by_invariant(self) -> Iterator[tuple[int, str, int]]:
        """Number, words, violations: of every invariant that was asked for, and of any that was violated."""
        told = (it.partition(":")[0] for it in self.violations)
        broken = Counter(int(text) for text in told if text.isdecimal())
        for number in sorted({*self.asked, *broken}):
            yield number, INVARIANTS.get(number, ""), broken[number]

    def rows(self) -> list[tuple[str, str]]:
        """The score, a line each; what must be nought says so."""
        p50, p99 = self.percentile(0.5), self.percentile(0.99)
        rows = [(name, f"{count:,}") for name, count in self.faults.items()]
        rows += [
            ("bindings in flight at the fault", f"{self.in_flight:,}"),
            ("  resumed", f"{self.resumed:,}"),
            ("  rolled back", f"{self.rolled_back:,}"),
        ]
        rows += [(f"  retained: {reason}", f"{count:,}") for reason, count in self.retained.items()]
        rows += [
            ("double binds (must be 0)", f"{self.double_binds:,}"),
            ("leaked reservations, assumptions, work (must be 0)", f"{self.leaked:,}"),
            ("lost pods (must be 0)", f"{self.lost_pods:,}"),
        ]
        if p50 is not None and p99 is not None:
            rows.append(("time to recover, p50 / p99", f"{p50:,.0f} ms / {p99:,.0f} ms"))
        return rows + list(self.facts.items())

    def as_json(self) -> dict[str, Any]:
        shown = {it.name: getattr(self, it.name) for it in fields(self) if it.name != "asked"}
        times = {
            "p50": self.percentile(0.5),
            "p99": self.percentile(0.99),
            "bindings": len(self.recovery_ms),
            "each": list(self.recovery_ms),
        }
        table = [{"invariant": n, "holds": what, "violations": count} for n, what, count in self.by_invariant()]
        return {**shown, "passed": self.passed, "recovery_ms": times, "invariants": table}


class SavedError(ValueError):
    """A file that is no saved report."""


_REPORT = TypeAdapter(DrillReport)


def as_saved(report: DrillReport, timeline: DrillTimeline | None) -> dict[str, Any]:
    """What `-o json` prints and `read_saved` reads."""
    shown = {} if timeline is None else {"timeline": TIMELINE.dump_python(timeline, mode="json")}
    return {**report.as_json(), **shown}


def read_saved(path: Path) -> tuple[DrillReport, DrillTimeline | None]:
    """A report of any drill, as it was printed with `-o json`."""
    try:
        given = json.loads(path.read_text())
        asked = [it["invariant"] for it in given.pop("invariants")]
        times = given.pop("recovery_ms")["each"]
        timeline = given.pop("timeline", None)
        known = {it.name: given[it.name] for it in fields(DrillReport) if it.name in given}
        report = _REPORT.validate_python({**known, "asked": asked, "recovery_ms": times})
        return report, None if timeline is None else TIMELINE.validate_python(timeline)
    except OSError as error:
        raise SavedError(f"{path}: it cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError):
        raise SavedError(f"{path}: this is no report; save one with: volsched drill run NAME -o json") from None
