"""A drill's report as one HTML file: no scripts, no fonts, nothing that is fetched from anywhere."""

from collections.abc import Iterator
from html import escape

from volsched.lab.drills.report import DrillReport
from volsched.lab.drills.timeline import DrillTimeline
from volsched.lab.drills.timeline_picture import picture

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
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(118px, 1fr)); gap: 12px;
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
td.n { text-align: right; font-variant-numeric: tabular-nums; padding-right: 0 }
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


def page(report: DrillReport, timeline: DrillTimeline | None) -> str:
    """Everything that the terminal shows, and the picture."""
    kind = "verdict" if report.passed else "verdict failed"
    verdict = f'<span class="{kind}">{escape(report.verdict.partition(":")[0])}</span>'
    title = escape(report.drill)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>volsched drill: {title}</title><style>{STYLE}</style></head><body><main>",
        f'<header><h1>{title}</h1>{verdict}</header><p class="about">{escape(report.about)}</p>',
        f'<div class="cards">{"".join(_cards(report))}</div>',
    ]
    if report.inconclusive:
        parts.append(f"<section><h2>What it does not show</h2><p>{escape(report.inconclusive)}</p></section>")
    if report.violations:
        told = "".join(f"<li>{escape(it)}</li>" for it in report.violations)
        parts.append(f'<section><h2>What was violated</h2><ul class="wrong">{told}</ul></section>')
    if timeline is not None and timeline.bars:
        keys = "".join(f'<i style="background:{colour}"></i>{told}' for colour, told in LEGEND)
        parts.append(
            f'<section><h2>Bindings around the fault</h2><p class="legend">{keys}</p>{picture(timeline)}</section>'
        )
    rows = "".join(f"<tr><th>{escape(what)}</th><td>{escape(it)}</td></tr>" for what, it in report.rows())
    parts.append(f'<div class="two"><section><h2>Score</h2><table>{rows}</table></section>')
    parts.append(f"<section><h2>Invariants</h2><table>{''.join(_invariants(report))}</table></section></div>")
    parts.append(
        "<footer>Times are those of whoever watched, from the first pod on.</footer></main></body></html>"
    )
    return "\n".join(parts)


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
        figures += [(_duration(p50), "to recover, p50", ""), (_duration(p99), "to recover, p99", "")]
    for figure, told, kind in figures:
        yield f'<div class="card {kind}"><b>{figure}</b><span>{told}</span></div>'


def _duration(ms: float) -> str:
    return f"{ms:,.0f} ms" if ms < 1_000 else f"{ms / 1000:,.1f} s"


def _invariants(report: DrillReport) -> Iterator[str]:
    for number, what, count in report.by_invariant():
        kind = " bad" if count else ""
        told = f"{count:,} violations" if count else "holds"
        yield f'<tr><th>{number}</th><td>{escape(what)}</td><td class="n{kind}">{told}</td></tr>'
