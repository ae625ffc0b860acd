"""Options for the level and format of the log; the settings are their defaults."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from volsched.log.database import Database

Level = Literal["debug", "info", "warning", "error"]
Form = Literal["text", "json"]
"""The values of `runtime.log_format`, which is not imported: every start of a command loads this module."""
LogLevelOption = Annotated[
    Level | None, typer.Option("--log-level", help="Level of the log; else VOLSCHED_LOG_LEVEL.")
]
LogFormatOption = Annotated[
    Form | None, typer.Option("--log-format", help="Form of the log; else VOLSCHED_LOG_FORMAT.")
]
VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Be verbose: log what is done, and show progress without a terminal."),
]


@dataclass(slots=True)
class LogChoice:
    """The choice of the command line; None leaves it to the settings."""

    level: Level | None = None
    form: Form | None = None
    verbose: bool = False
    serves: bool = False
    """The process serves, and has set up its log."""


_choice = LogChoice()


def begin_log_choice(level: Level | None, form: Form | None, verbose: bool) -> None:
    """Options before the verb; they replace the choice of an earlier command in this process."""
    _choice.level, _choice.form, _choice.verbose, _choice.serves = level, form, verbose, False


def note_log_choice(level: Level | None, form: Form | None, verbose: bool) -> None:
    """Options behind the verb; they override those before it, which stay where an option is not given."""
    _choice.level = level or _choice.level
    _choice.form = form or _choice.form
    _choice.verbose = verbose or _choice.verbose


def is_verbose() -> bool:
    return _choice.verbose


def asks_for_log() -> bool:
    """Whether an option asks for a log; the settings may, too."""
    return _choice.verbose or _choice.level is not None


def start_logging(*, serves: bool = False) -> bool:
    """Set up the log as it was chosen; returns whether there is one. A process that `serves` logs by default, any
    other command only on request."""
    from volsched.cli.console import Exit, fail
    from volsched.kube.problems import ConfigurationError
    from volsched.runtime.log_format import LogFormat, LogLevel, configure_logging
    from volsched.runtime.settings import read_settings

    try:
        settings = read_settings()
    except ConfigurationError as error:
        fail(Exit.USAGE, *error.problems)
    level = settings.log_level if _choice.level is None else LogLevel(_choice.level)
    if _choice.verbose and _choice.level is None:
        level = LogLevel.DEBUG if serves else LogLevel.INFO
    if level is None and not serves:
        return False
    form = settings.log_format if _choice.form is None else LogFormat(_choice.form)
    configure_logging(level or LogLevel.INFO, form)
    _choice.serves = _choice.serves or serves
    return True


def log_work_on(database: "Database") -> None:
    """The command's own commits are logged, if there is a log."""
    if _choice.serves or start_logging():
        from volsched.runtime.log_lines import log_commits
        from volsched.runtime.settings import read_settings

        log_commits(database, slow_seconds=read_settings().slow_transaction_seconds)
