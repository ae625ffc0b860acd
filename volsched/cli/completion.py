"""Shell completion of kinds, names and namespaces, from the store. On any error it offers nothing."""

import os
from typing import Any

import typer

from volsched.log.events.streams import NAMED, Named, kind_called

MOST = 200
DEFAULT = "default/"


def complete_kind(ctx: typer.Context, incomplete: str) -> list[str]:
    """Kinds that begin like this; after `pod/`, names."""
    kind, slash, start = incomplete.partition("/")
    if not slash:
        return [it.plural for it in NAMED if it.plural.startswith(incomplete.lower())]
    return [f"{kind}/{name}" for name in _names(ctx, kind, start)]


def complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, str(ctx.params.get("kind") or ""), incomplete)


def complete_kind_or_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Kinds or names, for commands that take both in one list of words, such as `delete`."""
    words = ctx.params.get("names") or []
    return _names(ctx, words[0], incomplete) if words else complete_kind(ctx, incomplete)


def complete_pod(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, "pod", incomplete)


def complete_claim(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, "pvc", incomplete)


def complete_volume(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, "pv", incomplete)


def complete_node(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, "node", incomplete)


def complete_namespace(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, "namespace", incomplete)


def _names(ctx: typer.Context, kind: str, start: str) -> list[str]:
    try:
        return _completions(ctx.params, kind_called(kind), start)
    except Exception:
        # The user is typing: an error would be printed into the middle of the line.
        return []


def _completions(given: dict[str, Any], named: Named, start: str) -> list[str]:
    """Names in the chosen namespace, and those in others with their namespace."""
    if not named.is_object or not named.namespaced:
        return _keys(given, named.noun, start)
    namespace = given.get("namespace")
    within = f"{namespace}/" if namespace else DEFAULT
    names = [it.removeprefix(within) for it in _keys(given, named.noun, f"{within}{start}")]
    return (
        names
        if namespace
        else [*names, *(it for it in _keys(given, named.noun, start) if it[: len(DEFAULT)] != DEFAULT)]
    )


def _keys(given: dict[str, Any], noun: str, start: str) -> list[str]:
    from volsched.log.reads.key_list import keys_beginning
    from volsched.log.store import open_store
    from volsched.runtime.settings import database_url

    if given.get("db") is None and os.environ.get("VOLSCHED_SERVER"):
        # A server is not asked: it may be slow, and requires credentials.
        return []
    database = open_store(database_url(given.get("db")))
    try:
        with database.read() as connection:
            return keys_beginning(connection, noun, start, limit=MOST)
    finally:
        database.close()
