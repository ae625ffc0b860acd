"""`volsched help`, and the placeholders of values in help: what to write, not Python types."""

from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperOption

EXAMPLES = """**Examples**

`volsched help get` is `volsched get -h`

`volsched help audit rollbacks`
"""
WORDS = {int: "N", float: "N"}


def show_help(
    called: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="VERB", help="A verb; without one, all are listed.")
    ] = None,
) -> None:
    """Show the help of a verb, as `-h` behind it does; without a verb, list the verbs."""
    root = called.find_root()
    root.command.main([*(words or ()), "--help"], prog_name=root.info_name, standalone_mode=False)


def use_plain_words() -> None:
    """Otherwise typer prints `<list[str]>` beside an argument, and `<bool>` beside every flag."""
    TyperOption.display_type_rich = _option_value  # type: ignore[method-assign,assignment]
    TyperArgument.display_type_rich = _argument_value  # type: ignore[method-assign,assignment]


def _option_value(option: TyperOption, ctx: Any) -> str:  # noqa: ARG001 - typer passes it by this name
    if option.metavar is not None or option.is_flag:
        return option.metavar or ""
    described = option.type_descriptor
    if described.is_choice:
        return "|".join(str(getattr(it, "value", it)) for it in described.choices or ())
    if described.is_path:
        return "FILE"
    return WORDS.get(described.annotation, str(option.name).upper().replace("_", "-"))


def _argument_value(_argument: TyperArgument, ctx: Any) -> str:  # noqa: ARG001 - as above
    """Help shows its name already."""
    return ""
