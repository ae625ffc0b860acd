"""`volsched drill replay` and `rehearse`: drills on a store of the user, which is only read."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout, table_of
from volsched.cli.manifest_input import lines_of
from volsched.cli.store_option import Db, explained, now_us, opened, position_of
from volsched.lab.drills.redecision import Comparison, Figures, redecide
from volsched.lab.drills.rehearsal import Rehearsed, copied, copied_from, read_only
from volsched.lab.drills.rehearsal import rehearse as rehearse_copy
from volsched.runtime.clock import SECOND
from volsched.runtime.settings import configuration
from volsched.scheduling.rules.profile import PROFILES, Profile

REPLAY_EXAMPLES = """**Examples**

`volsched drill replay --profile parity` what the reference's rules would have decided, for all that was recorded

`volsched drill replay --from 2026-11-01T00:00:00Z --to 5000 --config mine.yaml -o json`
"""
REHEARSE_EXAMPLES = """**Examples**

`volsched drill rehearse --db production.db` the store is copied; only the copy is written

`volsched drill rehearse --backup monday.jsonl.gz -o json`
"""
SHOWN = 20
GIB = 1 << 30


def replay(
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME|POSITION", help="Only requests after it.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME|POSITION", help="Only requests until it.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", help=f"Decide under this profile: {' or '.join(sorted(PROFILES))}.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Decide under this configuration.")] = None,
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """DECIDE recorded requests AGAIN under another profile or configuration, and compare with what was recorded.

    Each request is decided on the world as it was at the recorded decision; consequences of different decisions
    are not followed. The store is only read. (`volsched replay` is different: it decides nothing.)
    """
    if profile is not None and config is not None:
        fail(Exit.USAGE, "--profile and --config both choose the rules; give one of them")
    if profile is not None and profile not in PROFILES:
        fail(Exit.USAGE, f'--profile: there is no profile "{profile}"; there are {", ".join(sorted(PROFILES))}')
    with opened(db) as database:
        chosen: Profile = PROFILES[profile] if profile is not None else configuration(config).profile
        read_only(database)
        first, last = 0 if since is None else position_of(database, since), position_of(database, until)
        if first > last:
            fail(Exit.USAGE, f"--from is position {first:,} and --to {last:,}, which is before it; exchange them")
        comparison = redecide(database, profile=chosen, after=first, until=last)
    if output is Output.json:
        print_json(comparison.as_json())
    else:
        _print_comparison(comparison)


def _print_comparison(comparison: Comparison) -> None:
    span = f"after position {comparison.first:,} until {comparison.last:,}"
    stdout.print(
        f"DECIDED AGAIN under profile {escape(comparison.profile)}: {len(comparison.requests):,} requests {span}"
    )
    if not comparison.requests:
        stdout.print("no request was recorded in this range; give an earlier --from, or a later --to")
        return
    for verdict, count in sorted(comparison.verdicts.items()):
        stdout.print(f"  {verdict}: {count:,}")
    stdout.print(f"placements changed: {len(comparison.changed):,} of {len(comparison.requests):,}")
    table = table_of("", "recorded", "decided again")
    for what, (then, now) in _figures(comparison.recorded, comparison.again).items():
        table.add_row(what, then, now)
    stdout.print(table)
    changed = comparison.changed
    if changed:
        table = table_of("position", "pod", "recorded", "decided again", "")
        for request in changed[:SHOWN]:
            then, now = (
                f"{side.node} {','.join(sorted(side.volumes.values()))}".rstrip() if side.node else "nowhere"
                for side in (request.recorded, request.again)
            )
            table.add_row(str(request.position), escape(request.pod), escape(then), escape(now), request.verdict)
        stdout.print(table)
    if len(changed) > SHOWN:
        stdout.print(f"and {len(changed) - SHOWN:,} more; -o json has them all")


def _figures(recorded: Figures, again: Figures) -> dict[str, tuple[str, str]]:
    def both(show: str) -> tuple[str, str]:
        texts = []
        for figures in (recorded, again):
            part = figures.fragmentation
            texts.append(
                {
                    "placed": f"{figures.placed:,}",
                    "unschedulable": f"{figures.unschedulable:,}",
                    "waste": f"{figures.wasted_bytes / GIB:,.1f} GiB",
                    "skew": f"{figures.zone_skew:,}",
                    "fragmentation": "-" if part is None else f"{100 * part:.0f} %",
                }[show]
            )
        return texts[0], texts[1]

    return {
        "placed": both("placed"),
        "unschedulable": both("unschedulable"),
        "capacity beyond the requests": both("waste"),
        "zone skew": both("skew"),
        "fragmentation of free volumes": both("fragmentation"),
    }


def rehearse(
    backup: Annotated[Path | None, typer.Option("--backup", metavar="FILE", help="Rehearse on a backup.")] = None,
    seconds: Annotated[
        int, typer.Option("--seconds", min=1, help="How long the copy runs, in its own time.")
    ] = 120,
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """Recover a COPY of a store, and report what recovery would do to each binding, and how long it takes.

    The store itself is only read: the database refuses anything else. Provisioners, node agents and foreign
    clusters take no part. Exit 5 if an invariant is violated on the copy.
    """
    if backup is not None and db is not None:
        fail(Exit.USAGE, "--backup and --db both choose a store; give one of them")
    if backup is not None:
        with explained(str(backup)), copied_from(lines_of(str(backup))) as copy:
            rehearsal = rehearse_copy(copy, horizon=seconds * SECOND)
    else:
        with opened(db) as database:
            read_only(database)
            with copied(database, now=now_us()) as copy:
                rehearsal = rehearse_copy(copy, horizon=seconds * SECOND)
    _print_outcome(rehearsal, output)
    if not rehearsal.report.passed:
        raise typer.Exit(Exit.INTEGRITY)


def _print_outcome(rehearsal: Rehearsed, output: Output) -> None:
    # Here: the other command of the family imports this module.
    from volsched.lab.cli.drill import print_report

    rows = [
        {"binding": it.binding, "pod": it.pod, "node": it.node, "phase": it.phase, "outcome": it.outcome.value,
         "end": rehearsal.ends[it.binding], "queued": list(it.queued), "detail": it.detail}
        for it in rehearsal.recovery.bindings
    ]  # fmt: skip
    if output is Output.json:
        print_json({"rehearsed": True, **rehearsal.report.as_json(), "bindings": rows})
        return
    stdout.print("REHEARSED on a copy: the store was not changed")
    print_report(rehearsal.report)
    if rows:
        table = table_of("binding", "pod", "node", "was", "recovery outcome", "at the end", "")
        for row in rows[:SHOWN]:
            cells = (row[name] for name in ("binding", "pod", "node", "phase", "outcome", "end", "detail"))
            table.add_row(*(escape(str(cell)) for cell in cells))
        stdout.print(table)
    if len(rows) > SHOWN:
        stdout.print(f"and {len(rows) - SHOWN:,} more; -o json has them all")
