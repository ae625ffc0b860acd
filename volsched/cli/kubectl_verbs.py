"""Advice for verbs of kubectl that people type here, instead of a suggestion that is only spelt alike."""

from collections.abc import Sequence

SERVED = frozenset(
    {
        "annotate", "api-resources", "api-versions", "auth", "cluster-info", "cordon", "drain", "edit", "label",
        "patch", "replace", "rollout", "scale", "set", "taint", "uncordon", "wait",
    }
)  # fmt: skip
"""Verbs that kubectl can run on our server."""
IN_CONTAINERS = frozenset({"cp", "debug", "exec", "log", "logs", "port-forward", "proxy", "run"})
HERE = {
    "completion": "volsched --install-completion, or --show-completion to see it",
    "events": "volsched get events, or volsched history KIND NAME for all that happened",
}
"""Verbs that are called differently here."""
MANIFESTS = frozenset({"apply", "create", "delete", "import", "validate"})
"""Our own verbs that read manifests, with -f only, as kubectl's do."""
SERVER = "http://127.0.0.1:8700"
"""Where `volsched up` listens unless told otherwise."""


def instead_of_kubectl(verb: str) -> str | None:
    """What to use instead of a verb of kubectl; None for any other word."""
    if verb in HERE:
        return f"{verb} is a verb of kubectl; here it is {HERE[verb]}"
    if verb in IN_CONTAINERS:
        return f"{verb} is for containers, and volsched runs none; see volsched describe pod NAME"
    if verb not in SERVED:
        return None
    tried = "; volsched simulate --drain NODE says what would happen" if verb in ("cordon", "drain") else ""
    return f"{verb} is a verb of kubectl, for a server: volsched up, then kubectl -s {SERVER} {verb}{tried}"


def with_file_option(words: Sequence[str]) -> str | None:
    """Advice if manifests are named without -f, or `diff` is to compare some; else None."""
    verb, *rest = words
    if verb == "diff" and any(it.startswith(("-f", "--filename")) for it in rest):
        return (
            "diff compares two moments of the log; what manifests would change: volsched apply --dry-run -f FILE"
        )
    if verb not in MANIFESTS or not rest:
        return None
    from volsched.cli.manifest_input import SUFFIXES

    named = rest[0]
    if named == "-" or named.endswith(SUFFIXES):
        return f"manifests are given with -f: volsched {verb} -f {named}"
    return None
