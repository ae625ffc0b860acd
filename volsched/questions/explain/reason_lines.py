"""Stored reasons as lines of text: for each claim, and for failures after a node was chosen."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Data = Mapping[str, Any]
DIGITS_SHOWN = len("2025-11-16T22:00:00.123")


def claim_lines(reasons: Iterable[Data]) -> Iterator[str]:
    """Reasons that are stored per claim: the failures of each claim on the nearest node."""
    for reason in reasons:
        for claim in reason.get("claims", ()):
            yield f"on {claim['node']}, claim {claim['claim']}"
            for failure in claim.get("failures", ()):
                yield f"  {_rule(failure)}"
            if "volume" in claim:
                yield f"  nearest volume {claim['volume']}: {'; '.join(map(_rule, claim['rules']))}"


def failure_lines(item: Data) -> Iterator[str]:
    """The failure of the attempt itself, or all failures of a pod that keeps failing."""
    failing, failure = item.get("failing"), item.get("failure")
    if failing is not None:
        yield from failing_lines(failing)
    elif failure is not None:
        yield f"failed in {failure['stage']} at {failure['at'][:DIGITS_SHOWN]}Z: {failure['reason']}"
        yield from _failure_details(failure)


def failing_lines(failing: Data) -> Iterator[str]:
    yield f"its bindings keep failing: {_times(failing['times'])} since {failing['since']}, last {failing['last']}"
    for group in failing["nodes"]:
        yield f"  {group['node']}, {_times(group['times'])}: {group['message']}"
        yield from (f"  {line}" for line in _failure_details(group))


def _failure_details(failure: Data) -> Iterator[str]:
    if failure.get("claim"):
        yield f"  claim {failure['claim']} → {failure.get('volume') or 'a new volume'}"
    if failure.get("words"):
        yield f"  the provisioner says: {failure['words']}"


def _rule(failure: Data) -> str:
    return "{rule}: wanted {wanted}, got {got}".format(**failure)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
