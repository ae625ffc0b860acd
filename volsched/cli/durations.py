"""Lengths of time as people write them: `90s`, `15m`, `2h`, `7d`, `4w`."""

import re

from volsched.cli.console import Exit, fail
from volsched.engine.clock import SECOND

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def read_duration(text: str) -> int | None:
    """Microseconds; None where it is none."""
    match = re.fullmatch(r"([0-9]{1,9})([smhdw])", text)
    return None if match is None else int(match[1]) * UNITS[match[2]] * SECOND


def duration(text: str) -> int:
    found = read_duration(text)
    if found is None:
        fail(Exit.USAGE, f'"{text}" is not a length of time; write a number and s, m, h, d or w, such as 7d')
    return found
