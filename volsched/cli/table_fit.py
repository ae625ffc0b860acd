"""Tables on a terminal: text is folded into its column where that makes the table fit, and a wider one is paged.

Words are never broken: names and ids are copied from tables.
"""

import os
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence

from rich.cells import cell_len

LESS = "FRSX"
"""Options of `less`: it ends at once if all fits, and scrolls sideways instead of breaking lines."""
Rows = Sequence[Sequence[str]]


def fitted(rows: Rows, room: int, gap: int) -> tuple[list[list[str]], bool]:
    """The rows with text folded, so that they are no wider than `room`; False if that is not possible."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    least = [max(_longest_word(cell) for cell in column) for column in zip(*rows, strict=True)]
    excess = sum(widths) + gap * (len(widths) - 1) - room
    while excess > 0:
        spare, widest = max(
            (width - low, number) for number, (width, low) in enumerate(zip(widths, least, strict=True))
        )
        if spare <= 0:
            return [list(row) for row in rows], False
        reduction = min(spare, excess, max(1, spare // 2))
        widths[widest] -= reduction
        excess -= reduction
    return [line for row in rows for line in _fold(row, widths)], True


def _longest_word(cell: str) -> int:
    return max(map(cell_len, cell.split()), default=0)


def _fold(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    cells = [textwrap.wrap(cell, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]
             for cell, width in zip(row, widths, strict=True)]  # fmt: skip
    height = max(map(len, cells))
    return [[cell[line] if line < len(cell) else "" for cell in cells] for line in range(height)]


def page(text: str) -> bool:
    """Show it in the user's pager; False if there is none."""
    command = shlex.split(os.environ.get("PAGER", "") or "less")
    if (
        not sys.stdin.isatty()
        or os.environ.get("TERM") == "dumb"
        or not command
        or shutil.which(command[0]) is None
    ):
        return False
    environment = {**os.environ, "LESS": os.environ.get("LESS", LESS)}
    subprocess.run(command, input=text.encode(errors="replace"), env=environment, check=False)
    return True
