"""How many crashes there really were, said at the end of a run."""

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counted: Counter[str] = Counter()
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        if report.when == "call":
            counted.update({name: value for name, value in report.user_properties if isinstance(value, int)})
    for name, count in sorted(counted.items()):
        terminalreporter.write_line(f"{name}: {count:,}")
