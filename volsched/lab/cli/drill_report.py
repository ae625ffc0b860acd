"""A drill's report on the terminal."""

from rich.markup import escape

from volsched.cli.console import stdout, table_of
from volsched.lab.drills.report import DrillReport


def print_report(report: DrillReport) -> None:
    """The score and the invariants, for any drill."""
    table = table_of(report.drill, "")
    for what, figure in report.rows():
        table.add_row(escape(what), escape(figure))
    stdout.print(table)
    table = table_of("invariant", "what must hold", "violations")
    for number, what, count in report.by_invariant():
        table.add_row(str(number), what, str(count))
    stdout.print(table)
    for it in report.violations:
        stdout.print(f"[red]{escape(it)}[/red]")
    stdout.print("passed" if report.passed else f"[red]{escape(report.verdict)}[/red]")
