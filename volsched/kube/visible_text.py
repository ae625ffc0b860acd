"""What others have written, as a terminal or a spreadsheet may show it.

Names, messages and reasons come from whoever may write an object; a terminal would obey the escape sequences in
them, and a spreadsheet would compute a cell that begins like a formula.
"""

import re

_UNPRINTABLE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, but for tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the direction of what follows
    "\u2028\u2029\ufeff"  # break lines, or are not seen at all
    "]"
)
_FORMULA = re.compile(r"^\s*[=+\-@]")
_NUMBER = re.compile(r"^[+-]?[0-9.,:eE+-]*$")


def visible(text: str) -> str:
    """What is not printable as its `\\u` escape, which JSON and YAML strings read as the same character."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def plain_cell(text: str) -> str:
    """A cell of a CSV file that every spreadsheet takes for text, or for a number if it is one."""
    shown = visible(text)
    return f"'{shown}" if _FORMULA.match(shown) and not _NUMBER.match(shown) else shown
