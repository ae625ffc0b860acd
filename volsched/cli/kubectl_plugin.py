"""`kubectl volsched …`: the questions of `volsched`, asked of the cluster that kubectl talks to.

kubectl runs `kubectl-volsched` with everything after its name, kubectl's own flags included.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from volsched.cli import INTERRUPTED

LIVE_VERBS = frozenset({"get", "describe", "explain", "simulate", "orphans", "in-flight", "uses"})
NAMESPACED_VERBS = frozenset({"get", "describe", "explain", "uses"})
OWN_VERBS = frozenset(
    {"attach", "help", "manifests", "observe", "open", "record", "ungate", "validate", "version"}
)
"""They connect to the cluster themselves, or need neither a cluster nor a store."""
STORE_SETTINGS = ("VOLSCHED_DATABASE_URL", "VOLSCHED_SERVER")
_OTHERWISE = frozenset({"--db", "--server", "--live", "--help", "-h"})
VALUED = frozenset(
    {"--kubeconfig", "--context", "-f", "--filename", "-o", "--output", "-l", "--selector", "--config"}
)
"""Flags whose value is the next word, and no name of an object."""


def main() -> None:
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        from volsched.cli.app import app
        from volsched.cli.console import Exit, stderr

        if (mistake := without_store(sys.argv[1:], os.environ)) is not None:
            stderr.print(f"[bold red]error:[/] {mistake}")
            sys.exit(Exit.USAGE)
        app(args=plugin_arguments(sys.argv[1:], _namespace), prog_name="kubectl volsched")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def without_store(arguments: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The error for a verb that would use this user's store instead of the cluster: `apply` would write there."""
    from volsched.cli.app import verb_first

    words = verb_first(arguments)
    verb = words[0] if words else "--help"
    flags = {it.partition("=")[0] for it in words}
    if verb.startswith("-") or verb in LIVE_VERBS | OWN_VERBS or flags & _OTHERWISE:
        return None
    if any(environment.get(name) for name in STORE_SETTINGS):
        return None
    return (
        f"{verb} is about a store of volsched, not about the cluster, and none is named: give --db or --server of "
        f"an observer (volsched observe). The cluster is asked with {', '.join(sorted(LIVE_VERBS))}; kubectl "
        "changes it"
    )


def plugin_arguments(
    arguments: Sequence[str], namespace_of: Callable[[str | None, str | None], str | None]
) -> list[str]:
    """The same command for `volsched`: live, and in the namespace of kubectl's context where none is named."""
    from volsched.cli.app import verb_first

    words = verb_first(arguments)
    verb = words[0] if words else ""
    if verb not in LIVE_VERBS or {it.partition("=")[0] for it in words} & _OTHERWISE:
        return words
    if verb in NAMESPACED_VERBS and not _names_namespace(words):
        namespace = namespace_of(_value(words, "--kubeconfig"), _value(words, "--context"))
        if namespace is not None and namespace != "default":
            words += ["--namespace", namespace]
    return [*words, "--live"]


def _namespace(kubeconfig: str | None, context: str | None) -> str | None:
    """The namespace of the context; None without a context."""
    from volsched.cluster.kubernetes.access_files import find_access
    from volsched.cluster.kubernetes.kubeconfig import KubeconfigError

    try:
        return find_access(None if kubeconfig is None else Path(kubeconfig), context).namespace
    except KubeconfigError:
        # Connecting will report it.
        return None


def _names_namespace(words: Sequence[str]) -> bool:
    flags = ("-n", "--namespace", "-A", "--all-namespaces")
    if any(it.partition("=")[0] in flags or (it.startswith("-n") and not it.startswith("--")) for it in words):
        return True
    # NAMESPACE/NAME names it too.
    behind_flag = zip(("", *words), words, strict=False)
    return any("/" in it for flag, it in behind_flag if not it.startswith("-") and flag not in VALUED)


def _value(words: Sequence[str], flag: str) -> str | None:
    for index, word in enumerate(words):
        if word == flag and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None
