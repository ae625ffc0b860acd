"""Rows of a benchmark as a bar chart in SVG."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

BARS, BAR, ROOM, LETTER = 390, 18, 130, 6.5
"""In pixels: the longest bar, a bar with the gap below it, the figures behind the bars, a letter."""
MOST_LETTERS = 90
"""Letters of a label; longer ones are cut."""


def svg(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A group of bars for every column of numbers, each with a scale of its own."""
    lines: list[str] = []
    top = 40
    labels = int(max((len(_cut(label_of(row))) for row in rows), default=0) * LETTER) + 20
    width = labels + BARS + ROOM
    for name in _measures(rows):
        most = max((row[name] for row in rows if _is_figure(row.get(name))), default=0) or 1
        lines.append(_text(10, top, name.replace("_", " "), weight="bold"))
        top += BAR
        for row in rows:
            if _is_figure(row.get(name)):
                lines += _bar(top, labels, _cut(label_of(row)), row[name] / most, row[name])
                top += BAR
        top += BAR
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" viewBox="0 0 {width} {top}" '
        f'font-family="sans-serif" font-size="12" role="img">'
    )
    background = f'<rect width="{width}" height="{top}" fill="white"/>'
    return "\n".join([head, background, _text(10, 20, title, weight="bold"), *lines, "</svg>", ""])


def _bar(top: int, left: int, label: str, part: float, value: float) -> list[str]:
    width = max(part * BARS, 1)
    return [
        _text(10, top, label),
        f'<rect x="{left}" y="{top - 10}" width="{width:.1f}" height="{BAR - 6}" fill="#4477aa"/>',
        _text(left + width + 6, top, f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"),
    ]


def _cut(label: str) -> str:
    return label if len(label) <= MOST_LETTERS else f"{label[: MOST_LETTERS - 1]}…"


def _text(x: float, y: float, text: str, weight: str = "normal") -> str:
    return f'<text x="{x:.0f}" y="{y}" font-weight="{weight}">{escape(text)}</text>'


def _measures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns of measured numbers: whole numbers say what was measured."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if any(isinstance(row.get(name), float) for row in rows)]


def _is_figure(value: Any) -> bool:
    return isinstance(value, float) and value >= 0


def label_of(row: Mapping[str, Any]) -> str:
    """The label of a row: what was measured, without the figures."""
    return ", ".join(
        value if isinstance(value, str) else f"{name.replace('_', ' ')} {value:,}"
        for name, value in row.items()
        if value not in (None, "") and not isinstance(value, float | list | dict)
    )
