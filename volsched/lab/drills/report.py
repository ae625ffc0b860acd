"""The report of a drill: as a table, as JSON, or as one HTML file that fetches nothing."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from volsched.lab.drills.timeline import TIMELINE, DrillTimeline, lanes_picture, picture

# A drill is passed if every figure that must be 0 is 0, and if it could have failed: a fault that hit nothing
# is inconclusive. Kinds of crash are counted separately and never summed.

INVARIANTS: Mapping[int, str] = {
    1: "a volume and a claim have one owner, and each other",
    2: "no stamp of an unknown or rolled-back binding",
    3: "every binding ends, no pod and no work is left behind",
    4: "a volume with data is never unbound",
    5: "views, index and mirror are what the log says",
    6: "positions and versions are dense, the chain holds",
    7: "nothing breaks by itself, a repeat changes nothing",
    8: "a committed pod has all its volumes in reach",
    9: "the index decides as walking all nodes does",
    14: "no capacity is promised twice",
    15: "every write that could not be undone is reported",
}
"""Numbers of invariants (docs/log.md); a drill says which of them it checked."""


def count_double_binds(violations: Sequence[str]) -> int:
    return sum(it.startswith("1:") for it in violations)


def count_leaks(violations: Sequence[str]) -> int:
    """Stamps, assumptions and queued work that belong to no binding any more."""
    return sum(it.startswith(("2:", "3: effect")) or "still assumed" in it for it in violations)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillReport:
    drill: str
    about: str = ""
    faults: Mapping[str, int] = field(default_factory=dict)
    """The injected faults, by kind."""
    in_flight: int = 0
    """Bindings that were open at the fault."""
    resumed: int = 0
    """Bindings in flight that ended committed."""
    rolled_back: int = 0
    retained: Mapping[str, int] = field(default_factory=dict)
    """Retained legs, by reason."""
    double_binds: int = 0
    leaked: int = 0
    """Reservations, assumptions and queued work of ended bindings."""
    lost_pods: int = 0
    recovery_ms: Sequence[float] = ()
    """From the first fault that hit it until each binding in flight had ended."""
    checked_invariants: Sequence[int] = ()
    violations: Sequence[str] = ()
    """Violations as text, each beginning with the number of its invariant."""
    inconclusive: str = ""
    """Why the drill is inconclusive; empty if it is not."""
    delays_ms: Sequence[float] = ()
    """By how much pods waited longer than usual because of the fault (`process_work.pod_delays`)."""
    played_at: str = ""
    """RFC 3339; empty in reports of earlier versions, as the next two."""
    version: str = ""
    command: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Other facts of the run: engine, seeds, rates."""

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
        """The smallest time within which that share of bindings had ended; None if there was none."""
        times = sorted(self.recovery_ms)
        return times[max(ceil(share * len(times)) - 1, 0)] if times else None

    def by_invariant(self) -> Iterator[tuple[int, str, int]]:
        """Number, text, violations: of every invariant that was checked, and of any that was violated."""
        told = (it.partition(":")[0] for it in self.violations)
        broken = Counter(int(text) for text in told if text.isdecimal())
        for number in sorted({*self.checked_invariants, *broken}):
            yield number, INVARIANTS.get(number, ""), broken[number]

    @property
    def timed(self) -> bool:
        """Whether waits were measured; a simulation is stepped and has none."""
        return bool(self.recovery_ms or self.delays_ms)

    def rows(self) -> list[tuple[str, str]]:
        """The score and what was played, a line each."""
        told = (("played", self.played_at), ("version", self.version), ("command", self.command))
        return self.score() + [(what, it) for what, it in told if it]

    def score(self) -> list[tuple[str, str]]:
        """Figures that must be 0 are marked."""
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
        if self.timed:
            rows.append(("pods delayed by the fault by more than 1 s", _delayed(self.delays_ms)))
        return rows + list(self.facts.items())

    def as_json(self) -> dict[str, Any]:
        shown = {it.name: getattr(self, it.name) for it in fields(self) if it.name != "checked_invariants"}
        times = {
            "p50": self.percentile(0.5),
            "p99": self.percentile(0.99),
            "bindings": len(self.recovery_ms),
            "each": list(self.recovery_ms),
        }
        table = [{"invariant": n, "holds": what, "violations": count} for n, what, count in self.by_invariant()]
        return {**shown, "passed": self.passed, "recovery_ms": times, "invariants": table}


def _delayed(delays: Sequence[float]) -> str:
    if not delays:
        return "0"
    middle, longest = sorted(delays)[len(delays) // 2], max(delays)
    return f"{len(delays):,}, by {middle / 1000:,.1f} s in the middle and {longest / 1000:,.1f} s at most"


class SavedError(ValueError):
    """A file that is not a saved report."""


_REPORT = TypeAdapter(DrillReport)


def as_saved(report: DrillReport, timeline: DrillTimeline | None) -> dict[str, Any]:
    """The document that `-o json` prints and `read_saved` reads."""
    shown = {} if timeline is None else {"timeline": TIMELINE.dump_python(timeline, mode="json")}
    return {**report.as_json(), **shown}


def read_saved(path: Path) -> tuple[DrillReport, DrillTimeline | None]:
    """A report of any drill, as it was printed with `-o json`."""
    try:
        given = json.loads(path.read_text())
        invariants = [it["invariant"] for it in given.pop("invariants")]
        times = given.pop("recovery_ms")["each"]
        timeline = given.pop("timeline", None)
        known = {it.name: given[it.name] for it in fields(DrillReport) if it.name in given}
        report = _REPORT.validate_python({**known, "checked_invariants": invariants, "recovery_ms": times})
        return report, None if timeline is None else TIMELINE.validate_python(timeline)
    except OSError as error:
        raise SavedError(f"{path}: it cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError):
        raise SavedError(f"{path}: this is no report; save one with: volsched drill run NAME -o json") from None


# A drill's report as one HTML file: no scripts, no fonts, no external resources.

STYLE = """
:root { color-scheme: light; --ink: #1d2430; --soft: #68717f; --line: #e3e6eb; --good: #1f8a5b; --bad: #c62f38;
  --warm: #d98324; --calm: #9db8d8; --back: #f5f6f8; }
* { box-sizing: border-box }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", sans-serif }
main { max-width: 1160px; margin: 0 auto; padding: 32px 24px 48px }
h1 { font-size: 28px; margin: 0; letter-spacing: -.01em } h2 { font-size: 17px; margin: 0 0 12px }
header { display: flex; align-items: center; gap: 16px; margin-bottom: 4px }
.about { color: var(--soft); margin: 0 0 24px }
.verdict { padding: 3px 14px; border-radius: 99px; color: #fff; font-weight: 600; background: var(--good) }
.verdict.failed { background: var(--bad) }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(104px, 1fr)); gap: 12px;
  margin-bottom: 20px }
.card, section { background: #fff; border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px }
.card b { display: block; font-size: 26px; line-height: 1.2; font-variant-numeric: tabular-nums }
.card span { color: var(--soft); font-size: 13px }
.card.good b { color: var(--good) } .card.bad b { color: var(--bad) }
section { margin-bottom: 20px; overflow-x: auto }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 20px; align-items: start }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: 5px 10px 5px 0; border-top: 1px solid var(--line); vertical-align: top }
tr:first-child td, tr:first-child th { border-top: 0 } th { color: var(--soft); font-weight: 500 }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; padding: 5px 0 5px 10px }
td.bad { color: var(--bad); font-weight: 600 }
ul.wrong { color: var(--bad); margin: 0; padding-left: 20px }
.legend { color: var(--soft); font-size: 13px; margin: 0 0 8px }
.legend i { display: inline-block; width: 18px; height: 8px; border-radius: 2px; margin: 0 6px 0 14px }
.legend i:first-child { margin-left: 0 }
svg { width: 100%; height: auto; display: block; font: 10px system-ui, sans-serif }
svg .grid { stroke: var(--line) } svg .tick, svg .name { fill: var(--soft) }
svg .waits { stroke: #c3c9d2; stroke-width: 1 }
svg .committed rect { fill: var(--calm) } svg .committed.flying rect { fill: var(--good) }
svg .undone rect { fill: #f0c48d } svg .undone.flying rect { fill: var(--warm) }
svg .open rect { fill: var(--bad) }
svg .lane.up rect { fill: var(--calm) } svg .lane.starts rect { fill: #f0c48d }
svg .lane.down rect { fill: var(--bad) }
.played { color: var(--soft); font-size: 13px; margin: -18px 0 24px } .played code { color: var(--ink) }
svg line.mark { stroke: var(--bad); stroke-dasharray: 4 3 }
svg text.mark { fill: var(--bad); font-weight: 600; font-size: 11px }
svg line.settled { stroke: var(--good); stroke-dasharray: 2 3 } svg text.settled { fill: var(--good) }
footer { color: var(--soft); font-size: 13px }
"""
LEGEND = (
    ("var(--good)", "in flight at the fault, committed"),
    ("var(--warm)", "in flight, rolled back"),
    ("var(--calm)", "other bindings"),
    ("#f0c48d", "others, rolled back"),
    ("#c3c9d2", "pod waits"),
)


LANES = (("var(--calm)", "up"), ("#f0c48d", "starts"), ("var(--bad)", "down"))


def page(report: DrillReport, timeline: DrillTimeline | None) -> str:
    """The HTML page of a report: everything that the terminal shows, and the timeline."""
    kind = "verdict" if report.passed else "verdict failed"
    verdict = f'<span class="{kind}">{escape(report.verdict.partition(":")[0])}</span>'
    title = escape(report.drill)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>volsched drill: {title}</title><style>{STYLE}</style></head><body><main>",
        f'<header><h1>{title}</h1>{verdict}</header><p class="about">{escape(report.about)}</p>{_played(report)}',
        f'<div class="cards">{"".join(_cards(report))}</div>',
    ]
    if report.inconclusive:
        parts.append(f"<section><h2>Why it is inconclusive</h2><p>{escape(report.inconclusive)}</p></section>")
    if report.violations:
        told = "".join(f"<li>{escape(it)}</li>" for it in report.violations)
        parts.append(f'<section><h2>Violations</h2><ul class="wrong">{told}</ul></section>')
    if timeline is not None and timeline.lanes:
        keys = "".join(f'<i style="background:{colour}"></i>{told}' for colour, told in LANES)
        parts.append(f'<section><h2>Processes</h2><p class="legend">{keys}</p>{lanes_picture(timeline)}</section>')
    if timeline is not None and timeline.bars:
        keys = "".join(f'<i style="background:{colour}"></i>{told}' for colour, told in LEGEND)
        parts.append(
            f'<section><h2>Bindings around the fault</h2><p class="legend">{keys}</p>{picture(timeline)}</section>'
        )
    rows = "".join(f"<tr><th>{escape(what)}</th><td>{escape(it)}</td></tr>" for what, it in report.score())
    parts.append(f'<div class="two"><section><h2>Score</h2><table>{rows}</table></section>')
    parts.append(f"<section><h2>Invariants</h2><table>{''.join(_invariants(report))}</table></section></div>")
    if timeline is not None:
        parts.append("<footer>Times are those of the observer, from the first pod on.</footer>")
    return "\n".join([*parts, "</main></body></html>"])


def _played(report: DrillReport) -> str:
    told = [escape(it) for it in (report.played_at, report.version and f"volsched {report.version}") if it]
    told += [f"<code>{escape(report.command)}</code>"] if report.command else []
    return f'<p class="played">{" · ".join(told)}</p>' if told else ""


def _cards(report: DrillReport) -> Iterator[str]:
    retained = sum(report.retained.values())
    p50, p99 = report.percentile(0.5), report.percentile(0.99)
    figures: list[tuple[str, str, str]] = [
        (f"{report.in_flight:,}", "bindings in flight at the fault", ""),
        (f"{report.resumed:,}", "resumed", ""),
        (f"{report.rolled_back:,}", f"rolled back, {retained:,} legs retained", ""),
        *(
            (f"{count:,}", told, "bad" if count else "good")
            for count, told in (
                (report.double_binds, "double binds"),
                (report.leaked, "leaked"),
                (report.lost_pods, "lost pods"),
            )
        ),
    ]
    if p50 is not None and p99 is not None:
        figures += [(duration(p50), "to recover, p50", ""), (duration(p99), "to recover, p99", "")]
    if report.timed:
        most = f", by {duration(max(report.delays_ms))} at most" if report.delays_ms else ""
        figures.append((f"{len(report.delays_ms):,}", f"pods delayed by the fault{most}", ""))
    for figure, told, kind in figures:
        yield f'<div class="card {kind}"><b>{figure}</b><span>{told}</span></div>'


def duration(ms: float) -> str:
    return f"{ms:,.0f} ms" if ms < 1_000 else f"{ms / 1000:,.1f} s"


def _invariants(report: DrillReport) -> Iterator[str]:
    for number, what, count in report.by_invariant():
        kind = " bad" if count else ""
        told = f"{count:,} violations" if count else "holds"
        yield f'<tr><th>{number}</th><td>{escape(what)}</td><td class="n{kind}">{told}</td></tr>'


# An index page of drill runs: name, time and outcome of each run, and a link to its page.

INDEX_COLUMNS = ("drill", "played", "version", "verdict")
INDEX_FIGURES = ("in flight", "resumed", "rolled back", "delayed", "longest delay", "recovery p99")


@dataclass(frozen=True, slots=True)
class RunEntry:
    report: DrillReport
    link: str
    """The page of this run, relative to the index."""


def index_page(entries: Sequence[RunEntry]) -> str:
    """The HTML page of all runs, the newest first."""
    ordered = sorted(entries, key=lambda it: (it.report.played_at, it.report.drill), reverse=True)
    passed = sum(it.report.passed for it in entries)
    head = "".join(f"<th>{it}</th>" for it in INDEX_COLUMNS) + "".join(
        f'<th class="n">{it}</th>' for it in INDEX_FIGURES
    )
    rows = "".join(f"<tr>{''.join(_cells(it))}</tr>" for it in ordered)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>volsched drills</title><style>{STYLE}</style></head><body><main>",
            f'<header><h1>Drills</h1></header><p class="about">{len(entries)} runs, {passed} passed</p>',
            f"<section><table><tr>{head}</tr>{rows}</table></section></main></body></html>",
        ]
    )


def _cells(entry: RunEntry) -> list[str]:
    report = entry.report
    p99, longest = report.percentile(0.99), max(report.delays_ms, default=None)
    verdict = report.verdict.partition(":")[0]
    kind = "" if report.passed else ' class="bad"'
    figures = (
        f"{report.in_flight:,}",
        f"{report.resumed:,}",
        f"{report.rolled_back:,}",
        f"{len(report.delays_ms):,}" if report.timed else "-",
        "-" if longest is None else duration(longest),
        "-" if p99 is None else duration(p99),
    )
    return [
        f'<td><a href="{escape(entry.link)}">{escape(report.drill)}</a></td>',
        f"<td>{escape(report.played_at or '-')}</td><td>{escape(report.version or '-')}</td>",
        f"<td{kind}>{escape(verdict)}</td>",
        *(f'<td class="n">{it}</td>' for it in figures),
    ]
