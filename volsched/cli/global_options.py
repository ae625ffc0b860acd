"""Options that every command takes, before its verb or behind it, as with kubectl.

Before a command is parsed, options in front of the verb are moved behind it. There the verb itself takes them, or
the options that are added here do; a verb with an option of the same name keeps its own.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Annotated, Any

import typer

from volsched.cli.log_options import note_log_choice
from volsched.cli.remote.server_options import choice_of_command, note_choice

DbForAll = Annotated[str | None, typer.Option("--db", metavar="URL|FILE", help="The store, where one is used.")]
NamespaceForAll = Annotated[str | None, typer.Option("--namespace", "-n", metavar="NS", help="The namespace.")]
EveryNamespace = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Every namespace.")]
OutputForAll = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FORM", help="Form of the answer: json and others.")
]
LiveForAll = Annotated[
    bool,
    typer.Option("--live", help="List the cluster that kubectl talks to once, answer from that, store nothing."),
]
CHOICES = ("server", "token_file", "ca_file", "client_cert", "client_key", "kubeconfig", "context", "live")
"""Options that choose a server or cluster, added to every verb; a verb declares the others that it takes."""
DRY = "--dry-run"
DRY_VERBS = ("apply", "create", "delete")
DRY_VALUES = ("none", "client", "server")
PODS = ("pod", "po", "pods")
LOG = {"log_level": "level", "log_format": "form", "verbose": "verbose"}


def behind_verb(words: Sequence[str], options: Iterable[Any], families: Container[str]) -> list[str]:
    """The same command with its `options` behind its verb; `families` are verbs of two words."""
    takes_value = {flag: not it.is_flag for it in options if not it.is_eager for flag in it.opts}
    verbs: list[str] = []
    before: list[str] = []
    rest = list(words)
    while rest and len(verbs) < (2 if verbs and verbs[0] in families else 1):
        if not rest[0].startswith("-"):
            verbs.append(rest.pop(0))
            continue
        width = _width(rest[0], takes_value)
        if width == 0:
            # `--help`, or an unknown option, which the parser reports.
            break
        before += rest[:width]
        del rest[:width]
    if len(verbs) == 1 and verbs[0] in families:
        # A family alone only lists its verbs, and takes none of their options.
        before = []
    first = next((at for at, it in enumerate(rest) if it.startswith("-") and it != "-"), len(rest))
    # Before the other options: if an option is given twice, the one after the verb wins.
    return _with_dry_value(_with_kind([*verbs, *rest[:first], *before, *rest[first:]]))


def _with_kind(words: list[str]) -> list[str]:
    """`explain db-0`, `explain shop/db-0`, `explain pod/shop/db-0`: pods are the only thing that is explained."""
    if len(words) < 2 or words[0] != "explain" or words[1].startswith("-") or words[1] in PODS:
        return words
    kind, slash, name = words[1].partition("/")
    if slash and kind in PODS:
        return ["explain", "pod", name, *words[2:]]
    if len(words) > 2 and not words[2].startswith("-"):
        # Another kind and its name: reading the name of the pod reports it.
        return ["explain", "pod", f"{words[1]} {words[2]}", *words[3:]]
    return ["explain", "pod", *words[1:]]


def _with_dry_value(words: list[str]) -> list[str]:
    """`--dry-run` without a value is the client's, as in kubectl; other verbs have a plain flag of that name."""
    if not words or words[0] not in DRY_VERBS:
        return words
    pairs = zip(words, [*words[1:], ""], strict=True)
    return ["--dry-run=client" if it == DRY and after not in DRY_VALUES else it for it, after in pairs]


def add_global_options(command: Any, options: Iterable[Any], *, live: bool) -> None:
    """Add the options that every verb takes; its help does not list them, `volsched --help` does."""
    taken = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    for option in options:
        if taken & {*option.opts} or (option.name == "live" and not live):
            continue
        if option.name in CHOICES or option.name in LOG:
            command.params.append(
                _with_callback(option, listed=option.name == "live" or (live and option.name in _LIVE_TOO))
            )


_LIVE_TOO = ("kubeconfig", "context")


def _with_callback(option: Any, *, listed: bool) -> Any:
    option_copy = copy(option)
    # The environment was read with the options before the verb.
    option_copy.envvar, option_copy.expose_value, option_copy.hidden = None, False, not listed
    option_copy.callback = _note_log if option.name in LOG else _note_choice
    return option_copy


def _note_choice(_context: Any, option: Any, value: Any) -> None:
    if value is None or value is False:
        return
    given: dict[str, Any] = {option.name: value}
    if option.name in ("server", "kubeconfig", "context"):
        given["by_environment"] = False
    note_choice(replace(choice_of_command(), **given))


def _note_log(_context: Any, option: Any, value: Any) -> None:
    given: dict[str, Any] = {"level": None, "form": None, "verbose": False, LOG[option.name]: value}
    note_log_choice(**given)


def _width(word: str, takes_value: Mapping[str, bool]) -> int:
    """How many words the option takes; 0 if it is none of these."""
    flag, equals, _ = word.partition("=")
    if flag in takes_value:
        return 1 if equals or not takes_value[flag] else 2
    if word.startswith("--"):
        return 0
    # `-nshop`, `-vA`
    if takes_value.get(word[:2]):
        return 1
    return int(all(takes_value.get(f"-{letter}") is False for letter in word[1:]))
