"""How KIND and NAME on the command line are read, and the errors for those that do not exist."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from volsched.cli.completion import complete_kind, complete_namespace
from volsched.cli.console import Exit, fail
from volsched.kube.meta import DEFAULT_NAMESPACE
from volsched.log.events.streams import (
    BINDING,
    CATEGORIES,
    ID,
    KIND_OF_NOUN,
    NAMED,
    Named,
    UnknownKindError,
    kind_called,
    shown_names,
)

if TYPE_CHECKING:
    from volsched.objects.submission import Target


NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help="Namespace; 'default' without it.",
        autocompletion=complete_namespace,
    ),
]
AllOption = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Objects of every namespace.")]


KindArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help=f"One of {', '.join(map(shown_names, NAMED))}; several with commas, or all.",
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


def requested_objects(
    kinds: str, names: Sequence[str], *, namespace: str | None, everywhere: bool
) -> list[NamedObject]:
    """The objects that KIND, NAME, -n and -A select; the command ends if these contradict each other."""
    if everywhere and namespace is not None:
        fail(Exit.USAGE, "-n and -A contradict each other; give one of them")
    # `pod shop/db`, as our answers print it, may be quoted as one word.
    kinds, *first = kinds.split(maxsplit=1)
    names = [*first, *names]
    if ID.fullmatch(kinds) and not names:
        return [NamedObject(kind_of(BINDING), (kinds,))]
    kind, slash, name = kinds.partition("/")
    if slash:
        return _of_each([f"{kind}/{name}", *names], kind, namespace, everywhere)
    named_kinds = [it for word in kind.split(",") for it in CATEGORIES.get(word, (word,))]
    each_kind = list(dict.fromkeys(map(kind_of, named_kinds)))
    if names and everywhere:
        fail(Exit.USAGE, f"a name is of one namespace; leave -A out, or the name {names[0]}")
    if names and len(each_kind) > 1:
        fail(Exit.USAGE, f"several kinds have no name in common; ask for {names[0]} of one kind")
    return [
        NamedObject(
            named,
            tuple(key_of(named, it, namespace) for it in names),
            None if everywhere or not named.namespaced else namespace or DEFAULT_NAMESPACE,
        )
        for named in each_kind
    ]


def _of_each(words: Sequence[str], kind: str, namespace: str | None, everywhere: bool) -> list[NamedObject]:
    """`pod/a pvc/b`, and `pod/a b`: a word without a kind has the kind of the first one."""
    if everywhere:
        fail(Exit.USAGE, f"a name is of one namespace; leave -A out, or the name {words[0]}")
    keys: dict[Named, list[str]] = {}
    for word in words:
        named, name = _kind_in(word) or (kind_of(kind), word)
        keys.setdefault(named, []).append(key_of(named, name, namespace))
    return [
        NamedObject(named, tuple(them), namespace or DEFAULT_NAMESPACE if named.namespaced else None)
        for named, them in keys.items()
    ]


def _kind_in(word: str) -> tuple[Named, str] | None:
    """The kind that a name begins with, and the rest: `pod/shop/db`, `pv/disk-7`."""
    kind, slash, rest = word.partition("/")
    if not slash:
        return None
    try:
        return kind_called(kind), rest
    except UnknownKindError as error:
        if "/" in rest:
            fail(Exit.NOT_FOUND, str(error))
        return None


def one_of(kind: str, name: str | None, namespace: str | None) -> tuple[Named, str]:
    """The kind and key of the one object that KIND NAME, or KIND/NAME, names."""
    one, *others = requested_objects(kind, [] if name is None else [name], namespace=namespace, everywhere=False)
    if others or len(one.keys) != 1:
        fail(Exit.USAGE, f"which one? give KIND NAME, such as {one.named.singular} NAME")
    return one.named, one.keys[0]


def kind_of(text: str) -> Named:
    try:
        return kind_called(text)
    except UnknownKindError as error:
        if text.isascii() and text.isdecimal():
            event = f"the event at position {text}, with its causes and consequences"
            fail(Exit.NOT_FOUND, f'there is no kind "{text}"; {event}, is: volsched audit cause {text}')
        fail(Exit.NOT_FOUND, str(error))


def bare_name(named: Named, name: str) -> str:
    """Without the kind that may stand before it: `persistentvolume/disk-7`, `pod/shop/db`, `pod shop/db`."""
    kind, space, rest = name.strip().partition(" ")
    if not space:
        kind, slash, rest = name.partition("/")
        if not slash:
            return name
    try:
        given = kind_called(kind)
    except UnknownKindError as error:
        if space:
            fail(Exit.NOT_FOUND, str(error))
        return name
    if given == named:
        return rest
    if space or "/" in rest or not named.namespaced:
        fail(Exit.USAGE, f'"{name}" is a {given.singular}, and a {named.singular} is asked for')
    return name


def key_of(named: Named, name: str, namespace: str | None) -> str:
    """The key of `NAME` or `NAMESPACE/NAME`, with its kind or without."""
    name = bare_name(named, name)
    if not named.is_object or not named.namespaced:
        return name
    given, slash, bare = name.rpartition("/")
    if slash and namespace not in (None, given):
        fail(Exit.USAGE, f'"{name}" names namespace {given}, and -n says {namespace}; give one of them')
    return f"{given if slash else namespace or DEFAULT_NAMESPACE}/{bare}"


def words_of(named: Named, key: str) -> dict[str, str | None]:
    """An object as parameters of a question."""
    namespace, _, name = key.rpartition("/") if named.is_object and named.namespaced else ("", "", key)
    return {"kind": named.plural, "name": name, "namespace": namespace or None}


def named_targets(words: Sequence[str], namespace: str | None) -> list["Target"]:
    """The objects that `delete KIND NAME…` or `delete KIND/NAME…` names."""
    # Imported here: commands that only read objects do not need it.
    from volsched.objects.submission import Target

    requests = requested_objects(words[0], words[1:], namespace=namespace, everywhere=False)
    for request in requests:
        if not request.keys:
            fail(Exit.USAGE, f"which {words[0]}? give names: volsched delete {words[0]} NAME")
        if not request.named.is_object:
            fail(
                Exit.USAGE, f"{request.named.plural} are history and stay; delete the pod, or see volsched recover"
            )
    return [Target(KIND_OF_NOUN[request.named.noun], key) for request in requests for key in request.keys]
