"""Lengths of time as people write them: `90s`, `15m`, `2h`, `7d`, `4w`."""

from volsched.cli.console import Exit, fail
from volsched.questions.history.moments import read_duration


def duration(text: str) -> int:
    found = read_duration(text)
    if found is None:
        fail(Exit.USAGE, f'"{text}" is not a length of time; write a number and s, m, h, d or w, such as 7d')
    return found
