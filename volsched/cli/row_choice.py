"""Which rows `get` shows and in which order: `--field-selector` and `--sort-by`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from volsched.cli.console import Exit, fail
from volsched.questions.get.object_rows import ObjectRow

if TYPE_CHECKING:
    from volsched.kube.field_selectors import FieldSelector
    from volsched.kube.json_path import Path
    from volsched.log.events.streams import Named

FieldSelectorOption = Annotated[
    str | None,
    typer.Option("--field-selector", metavar="SELECTOR", help="Only with these fields: status.phase!=Running."),
]
SortOption = Annotated[
    str | None,
    typer.Option("--sort-by", metavar="PATH", help="In the order of a field: .metadata.creationTimestamp."),
]


@dataclass(frozen=True, slots=True)
class RowChoice:
    fields: "FieldSelector" = ()
    order: "Path" = ()
    order_text: str = ""

    def includes(self, row: ObjectRow) -> bool:
        if not self.fields:
            return True
        from volsched.kube.field_selectors import fields_match

        return fields_match(self.fields, row.manifest())

    def select(self, rows: Sequence[ObjectRow]) -> Sequence[ObjectRow]:
        rows = [it for it in rows if self.includes(it)] if self.fields else rows
        if not self.order or not rows:
            return rows
        from volsched.kube.json_path import values_at

        keyed = [(_rank(values_at(self.order, it.manifest())), it) for it in rows]
        if all(rank == NO_FIELD for rank, _ in keyed):
            fail(Exit.USAGE, f"none of these has the field {self.order_text}; see what they have with -o yaml")
        return [it for _, it in sorted(keyed, key=lambda it: it[0])]


EVERY_ROW = RowChoice()
NO_FIELD = (0, 0, "")
"""The rank of a row without the field: it comes first, as in kubectl."""


def row_choice(fields: str | None, order: str | None, kinds: "Sequence[Named]") -> RowChoice:
    """Ends the command for an invalid selector or path, and for a field that the kinds do not have."""
    if fields is None and order is None:
        return EVERY_ROW
    from volsched.kube.field_selectors import FieldSelectorError, field_terms
    from volsched.kube.json_path import JsonPathError, parse_path

    try:
        terms = () if fields is None else field_terms(fields)
        path = () if order is None else parse_path(order)
    except FieldSelectorError as error:
        fail(Exit.USAGE, f"{error}; write status.phase=Bound,metadata.name!=a")
    except JsonPathError as error:
        fail(Exit.USAGE, f"--sort-by: {error}")
    for named in kinds:
        for term in terms:
            _refuse_unknown(named, term.field)
    return RowChoice(terms, path, order or "")


def _refuse_unknown(named: "Named", field: str) -> None:
    """A field that no object can have would silently select nothing."""
    from volsched.kube.known_fields import unknown_field_hints
    from volsched.log.events.streams import KIND_OF_NOUN

    if not named.is_object:
        return
    nested: Any = ""
    for step in reversed(field.split(".")):
        nested = {step: nested}
    for unknown, meant in unknown_field_hints(KIND_OF_NOUN[named.noun], nested).items():
        hint = f"did you mean {meant}?" if meant else f"see volsched get {named.plural} -o yaml"
        fail(Exit.USAGE, f'{named.plural} have no field "{unknown}" to select by; {hint}')


def _rank(values: Sequence[Any]) -> tuple[int, Any, str]:
    """Sorts numbers and quantities by value, then texts alphabetically."""
    if not values:
        return NO_FIELD
    value = values[0]
    from volsched.kube.quantity import NANO, QuantityError, parse_quantity

    if isinstance(value, (int, float)):
        return 1, value * NANO, ""
    try:
        return 1, parse_quantity(str(value)).nano, ""
    except QuantityError:
        return 2, 0, str(value)
