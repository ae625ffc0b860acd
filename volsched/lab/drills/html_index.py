"""A page over many runs of drills: what was played when, with what outcome, and a link to its own page."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from volsched.lab.drills.report import STYLE, DrillReport, duration

COLUMNS = ("drill", "played", "version", "verdict")
FIGURES = ("in flight", "resumed", "rolled back", "delayed", "longest delay", "recovery p99")


@dataclass(frozen=True, slots=True)
class RunEntry:
    report: DrillReport
    link: str
    """The page of this run, relative to the index."""


def index_page(entries: Sequence[RunEntry]) -> str:
    """The newest first."""
    ordered = sorted(entries, key=lambda it: (it.report.played_at, it.report.drill), reverse=True)
    passed = sum(it.report.passed for it in entries)
    head = "".join(f"<th>{it}</th>" for it in COLUMNS) + "".join(f'<th class="n">{it}</th>' for it in FIGURES)
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
