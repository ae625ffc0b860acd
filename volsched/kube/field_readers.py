"""How a manifest's fields become the fields of a value: `at` names the path, readers turn scalars into values.

Objects are declared once, as dataclasses; pydantic builds them straight from a manifest and reports every field
whose type is wrong. Content (is this a legal access mode?) is judged in `validation`, so that what a foreign
scheduler would see, legal or not, can be read as it is.
"""

from typing import Annotated, Any

from pydantic import AliasPath, BeforeValidator, Field, Strict
from pydantic.fields import FieldInfo

from volsched.kube.quantity import Quantity, QuantityError, parse_quantity


def at(*path: str) -> FieldInfo:
    """The place of a field in the manifest, for use in `Annotated`."""
    info: FieldInfo = Field(validation_alias=AliasPath(*path))
    return info


def read_quantity(raw: Any) -> Quantity:
    """A quantity as JSON or YAML may hold it: a string, or a number."""
    if isinstance(raw, Quantity):
        return raw
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise ValueError("must be a quantity such as 10Gi")
    try:
        return parse_quantity(raw.strip() if isinstance(raw, str) else repr(raw))
    except QuantityError as error:
        raise ValueError(f"is not a quantity: {error}; write for example 10Gi, 10G or 1500m") from None


Amount = Annotated[Quantity, BeforeValidator(read_quantity)]
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
