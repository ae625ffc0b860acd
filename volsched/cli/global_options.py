"""Options that every command takes: they may stand before the verb or behind it, as kubectl's may.

Before a command is parsed, what stands before its verb is put behind it, where the verb itself or what is added
here takes it. A verb that has an option of the same name keeps its own.
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
"""Options that say who is asked; of the others, a verb takes those that it declares."""
DRY = "--dry-run"
DRY_VERBS = ("apply", "create", "delete")
DRY_VALUES = ("none", "client", "server")
PODS = ("pod", "po", "pods")
LOG = {"log_level": "level", "log_format": "form", "verbose": "verbose"}


def behind_verb(words: Sequence[str], options: Iterable[Any], families: Container[str]) -> list[str]:
    """The same command, whose `options` stand behind its verb; `families` are verbs of two words."""
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
            # `--help`, or what nobody knows: whoever parses it says so.
            break
        before += rest[:width]
        del rest[:width]
    if len(verbs) == 1 and verbs[0] in families:
        # A family alone only lists its verbs, and takes none of their options.
        before = []
    first = next((at for at, it in enumerate(rest) if it.startswith("-") and it != "-"), len(rest))
    # Before all others: where one is given twice, the one that stood behind the verb counts.
    return _with_dry_value(_with_kind([*verbs, *rest[:first], *before, *rest[first:]]))


def _with_kind(words: list[str]) -> list[str]:
    """`explain db-0`, `explain shop/db-0`, `explain pod/shop/db-0`: pods are the only thing that is explained."""
    if len(words) < 2 or words[0] != "explain" or words[1].startswith("-") or words[1] in PODS:
        return words
    kind, slash, name = words[1].partition("/")
    if slash and kind in PODS:
        return ["explain", "pod", name, *words[2:]]
    if len(words) > 2 and not words[2].startswith("-"):
        # Another kind and its name: whoever reads the name of the pod says so.
        return ["explain", "pod", f"{words[1]} {words[2]}", *words[3:]]
    return ["explain", "pod", *words[1:]]


def _with_dry_value(words: list[str]) -> list[str]:
    """`--dry-run` without a value is the client's, as in kubectl; other verbs have a plain flag of that name."""
    if not words or words[0] not in DRY_VERBS:
        return words
    pairs = zip(words, [*words[1:], ""], strict=True)
    return ["--dry-run=client" if it == DRY and after not in DRY_VALUES else it for it, after in pairs]


def add_global_options(command: Any, options: Iterable[Any], *, live: bool) -> None:
    """What every verb takes behind it, and does not list: `volsched --help` does."""
    taken = {flag for it in command.params for flag in (*it.opts, *it.secondary_opts)}
    for it in options:
        if taken & {*it.opts} or (it.name == "live" and not live):
            continue
        if it.name in CHOICES or it.name in LOG:
            command.params.append(_noted(it, listed=it.name == "live" or (live and it.name in _LIVE_TOO)))


_LIVE_TOO = ("kubeconfig", "context")


def _noted(option: Any, *, listed: bool) -> Any:
    noted = copy(option)
    # The variables of the environment were read before the verb.
    noted.envvar, noted.expose_value, noted.hidden = None, False, not listed
    noted.callback = _note_log if option.name in LOG else _note_choice
    return noted


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
    """How many words an option has; 0: it is none of these."""
    flag, equals, _ = word.partition("=")
    if flag in takes_value:
        return 1 if equals or not takes_value[flag] else 2
    if word.startswith("--"):
        return 0
    # `-nshop`, `-vA`
    if takes_value.get(word[:2]):
        return 1
    return int(all(takes_value.get(f"-{letter}") is False for letter in word[1:]))
