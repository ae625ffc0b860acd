"""What people mean by KIND and NAME, and what to tell them where there is no such thing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from sqlalchemy import Connection

from volsched.cli.console import Exit, fail
from volsched.log.events.kind_names import NAMED, Named, UnknownKindError, kind_called, shown_names
from volsched.log.events.streams import KIND_OF_NOUN
from volsched.questions.get.near_names import never_was

if TYPE_CHECKING:
    from volsched.objects.submission import Target

DEFAULT_NAMESPACE = "default"

NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NS", help="Namespace; 'default' without it.")
]
AllOption = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Objects of every namespace.")]


def complete_kind(incomplete: str) -> list[str]:
    """For the shell: the kinds that begin so."""
    return [name for named in NAMED for name in (named.plural,) if name.startswith(incomplete.lower())]


KindArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help=f"One of {', '.join(map(shown_names, NAMED))}; several with commas.",
        autocompletion=complete_kind,
    ),
]


NameArgument = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Its name, or NAMESPACE/NAME; the ID of a binding. Or KIND/NAME at once."),
]


@dataclass(frozen=True, slots=True)
class NamedObject:
    """Objects of one kind: those of these keys, or all of a namespace; None is every namespace."""

    named: Named
    keys: tuple[str, ...] = ()
    namespace: str | None = None


def wanted(kinds: str, names: Sequence[str], *, namespace: str | None, everywhere: bool) -> list[NamedObject]:
    """What KIND, NAME, -n and -A mean together; the end of the command where they contradict each other."""
    if everywhere and namespace is not None:
        fail(Exit.USAGE, "-n and -A contradict each other; give one of them")
    kind, slash, name = kinds.partition("/")
    if slash:
        names = [name, *(_without_kind(it, kind) for it in names)]
    found = [kind_of(it) for it in kind.split(",")]
    if names and everywhere:
        fail(Exit.USAGE, f"a name is of one namespace; leave -A out, or the name {names[0]}")
    if names and len(found) > 1:
        fail(Exit.USAGE, f"several kinds have no name in common; ask for {names[0]} of one kind")
    return [
        NamedObject(
            named,
            tuple(key_of(named, it, namespace) for it in names),
            None if everywhere or not named.namespaced else namespace or DEFAULT_NAMESPACE,
        )
        for named in found
    ]


def one_of(kind: str, name: str | None, namespace: str | None) -> tuple[Named, str]:
    """What KIND NAME, or KIND/NAME, means where it is one thing: its kind and its key."""
    one, *others = wanted(kind, [] if name is None else [name], namespace=namespace, everywhere=False)
    if others or len(one.keys) != 1:
        fail(Exit.USAGE, f"which one? give KIND NAME, such as {one.named.singular} NAME")
    return one.named, one.keys[0]


def kind_of(text: str) -> Named:
    try:
        return kind_called(text)
    except UnknownKindError as error:
        fail(Exit.NOT_FOUND, str(error))


def key_of(named: Named, name: str, namespace: str | None) -> str:
    """`NAME`, or `NAMESPACE/NAME` as everything of ours prints it."""
    if not named.is_object or not named.namespaced:
        return name
    given, slash, bare = name.rpartition("/")
    if slash and namespace not in (None, given):
        fail(Exit.USAGE, f'"{name}" names namespace {given}, and -n says {namespace}; give one of them')
    return f"{given if slash else namespace or DEFAULT_NAMESPACE}/{bare}"


def named_targets(words: Sequence[str], namespace: str | None) -> list["Target"]:
    """KIND NAME… or KIND/NAME of objects that people may delete."""
    # Those who only look at objects do not load what changes them.
    from volsched.objects.submission import Target

    one, *others = wanted(words[0], words[1:], namespace=namespace, everywhere=False)
    if others or not one.keys:
        fail(Exit.USAGE, f"which {words[0]}? give names: volsched delete {words[0]} NAME")
    if not one.named.is_object:
        fail(Exit.USAGE, f"{one.named.plural} are history and stay; delete the pod, or see volsched recover")
    return [Target(KIND_OF_NOUN[one.named.noun], key) for key in one.keys]


def refuse_unknown(connection: Connection, named: Named, key: str) -> None:
    """The end of the command for what never was there; what is gone by now is history too."""
    message = never_was(connection, named, key)
    if message is not None:
        fail(Exit.NOT_FOUND, message)


def _without_kind(name: str, kind: str) -> str:
    """`pod/a pod/b` is `pod a b`."""
    given, slash, bare = name.partition("/")
    return bare if slash and given.lower() == kind.lower() else name
