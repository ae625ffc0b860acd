"""Text for people: foreign text made safe to show, selectors and references in short."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Every command shows text, and few load the values of volumes.
    from volsched.kube.selectors import LabelSelector, Requirement, TopologyTerm
    from volsched.kube.storage import Volume

# Foreign text, made safe for a terminal or a spreadsheet.
#
# Names, messages and reasons come from any writer of objects; a terminal would execute the escape sequences in
# them, and a spreadsheet would evaluate a cell that begins like a formula.

_UNPRINTABLE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, except tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the direction of the following text
    "\u2028\u2029"  # break lines
    "\u00ad\u180e\u200b-\u200d\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # are invisible
    "]"
)
# Full-width signs too: some spreadsheets treat them like the ASCII ones.
_FORMULA = re.compile(r"^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"^[+-]?[0-9.,:eE+-]*$")


def visible(text: str) -> str:
    """Unprintable characters as `\\u` escapes, which JSON and YAML strings read as the same characters."""
    return _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def is_visible(text: str) -> bool:
    """Whether the text is shown unchanged."""
    return _UNPRINTABLE.search(text) is None


def one_line(text: str) -> str:
    """The text on one line, for a table cell or a list entry: further lines would look like other entries."""
    return " ".join(text.splitlines())


def plain_cell(text: str) -> str:
    """A cell of a CSV file that every spreadsheet reads as text, or as a number if it is one."""
    shown = visible(text)
    return f"'{shown}" if _FORMULA.match(shown) and not _NUMBER.match(shown) else shown


# Selectors, affinities and references as short text for the `wanted` and `got` of a rejection.


def or_none(text: str | None) -> str:
    return f'"{text}"' if text else "none"


def labels_text(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={labels[key]}" for key in sorted(labels)) or "no labels"


def requirement_text(requirement: "Requirement") -> str:
    values = f" [{', '.join(requirement.values)}]" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def label_selector_text(selector: "LabelSelector | None") -> str:
    if selector is None:
        return "no selector"
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    parts += [requirement_text(requirement) for requirement in selector.match_expressions]
    return ", ".join(parts) or "anything"


def affinity_text(volume: "Volume") -> str:
    affinity = volume.node_affinity
    if affinity is None or affinity.required is None:
        return "reachable from every node"
    terms = [
        " and ".join(requirement_text(part) for part in (*term.match_expressions, *term.match_fields)) or "nothing"
        for term in affinity.required.node_selector_terms
    ]
    return " or ".join(terms) or "no node at all"


def topologies_text(terms: "Sequence[TopologyTerm]") -> str:
    return " or ".join(
        " and ".join(f"{part.key} In [{', '.join(part.values)}]" for part in term.match_label_expressions)
        or "nothing"
        for term in terms
    )


def claimed_by(volume: "Volume") -> str:
    ref = volume.claim_ref
    return "nobody" if ref is None else f"{ref.namespace}/{ref.name}" + (f" (uid {ref.uid})" if ref.uid else "")


def counted(number: int, noun: str) -> str:
    """`1 object`, `2 objects`."""
    return f"{number} {noun}{'s' * (number != 1)}"
