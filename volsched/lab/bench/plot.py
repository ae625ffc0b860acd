"""Rows of a benchmark as a bar chart in SVG, and as lines of a history file, to see how figures change."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

WIDTH, BAR, LABEL, ROOM = 900, 18, 380, 130
"""In pixels: of the chart, of a bar with the gap below it, of the labels, and for the figures behind the bars."""


def svg(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A group of bars for every column of numbers, each with a scale of its own."""
    lines: list[str] = []
    top = 40
    for name in _measures(rows):
        most = max((row[name] for row in rows if _is_figure(row.get(name))), default=0) or 1
        lines.append(_text(10, top, name.replace("_", " "), weight="bold"))
        top += BAR
        for row in rows:
            if _is_figure(row.get(name)):
                lines += _bar(top, _label(row), row[name], most)
                top += BAR
        top += BAR
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}" '
        f'font-family="sans-serif" font-size="12" role="img">'
    )
    background = f'<rect width="{WIDTH}" height="{top}" fill="white"/>'
    return "\n".join([head, background, _text(10, 20, title, weight="bold"), *lines, "</svg>", ""])


def _bar(top: int, label: str, value: float, most: float) -> list[str]:
    width = max(value / most * (WIDTH - LABEL - ROOM), 1)
    return [
        _text(10, top, label),
        f'<rect x="{LABEL}" y="{top - 10}" width="{width:.1f}" height="{BAR - 6}" fill="#4477aa"/>',
        _text(LABEL + width + 6, top, f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"),
    ]


def _text(x: float, y: float, text: str, weight: str = "normal") -> str:
    return f'<text x="{x:.0f}" y="{y}" font-weight="{weight}">{escape(text)}</text>'


def _measures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns of measured numbers: whole numbers say what was measured."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if any(isinstance(row.get(name), float) for row in rows)]


def _is_figure(value: Any) -> bool:
    return isinstance(value, float) and value >= 0


def _label(row: Mapping[str, Any]) -> str:
    return ", ".join(
        value if isinstance(value, str) else f"{name.replace('_', ' ')} {value:,}"
        for name, value in row.items()
        if value not in (None, "") and not isinstance(value, float | list | dict)
    )


def append_history(file: Path, bench: str, rows: Sequence[Mapping[str, Any]], *, at: str, load: float) -> None:
    """One line a row: what was measured, when, and how busy the machine was."""
    with file.open("a", encoding="utf-8") as written:
        for row in rows:
            written.write(json.dumps({"bench": bench, "at": at, "load": load, **row}) + "\n")
