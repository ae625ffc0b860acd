"""Commands that are loaded when they are called: a verb pays for what it uses, and `--help` for none of them."""

import gc
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

MARKUP: Literal["markdown"] = "markdown"


def _full(module: str) -> str:
    """A module of this package, unless its whole name is given."""
    return module if module.startswith("volsched.") else f"{__package__}.{module}"


@dataclass(frozen=True, slots=True)
class CommandVerb:
    """A command that is one function of a module in this folder, or of a module named in full."""

    name: str
    module: str
    help: str
    """Its line in the list of commands; the whole text is the function's own."""
    function: str = ""
    """Without it, the function that is called as the verb is."""
    examples: str = "EXAMPLES"
    """What the module calls the text below the options."""
    needs_words: bool = False
    """Called with nothing, it shows its help."""

    def add_to(self, app: typer.Typer) -> None:
        module = import_module(_full(self.module))
        add = app.command(self.name, epilog=getattr(module, self.examples), no_args_is_help=self.needs_words)
        add(getattr(module, self.function or self.name))


@dataclass(frozen=True, slots=True)
class QuestionVerb:
    """A command that is a question of the registry, and called as it is."""

    name: str
    help: str
    """Its line in the list of commands; the whole text is the question's own."""

    def add_to(self, app: typer.Typer) -> None:
        from volsched.cli.question_command import add_question
        from volsched.questions.registry import question

        add_question(app, question(self.name), self.name)


@dataclass(frozen=True, slots=True)
class Family:
    """A command with commands of its own: the `app` of a module in this folder."""

    name: str
    module: str
    help: str

    def add_to(self, app: typer.Typer) -> None:
        app.add_typer(import_module(_full(self.module)).app, name=self.name)


class LazyGroup(TyperGroup):
    """Lists commands from a table, and loads the one that is called, or that a shell completes."""

    table: ClassVar[Mapping[str, tuple[CommandVerb | QuestionVerb | Family, ...]]] = {}
    """By the title under which they are listed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._unloaded = {it.name: it for entries in self.table.values() for it in entries}
        for title, entries in self.table.items():
            for it in entries:
                self.add_command(TyperCommand(it.name, help=it.help, rich_help_panel=title))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name in self._unloaded:
            command = _loaded(self._unloaded.pop(name))
            self.add_command(command, name)
        return name, command, rest


def _loaded(entry: CommandVerb | QuestionVerb | Family) -> Any:
    holder = typer.Typer(rich_markup_mode=MARKUP, callback=_nothing)
    # Modules stay: looking for garbage among them takes an eighth of the start and finds none.
    gc.disable()
    try:
        entry.add_to(holder)
    finally:
        gc.freeze()
        gc.enable()
    return get_group(holder).commands[entry.name]


def _nothing() -> None:
    """A group is not asked for a command of its own where it has a callback."""
