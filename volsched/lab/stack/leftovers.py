"""What a supervisor that died has left running, and how it is cleaned up before anything is started again."""

import signal
import time
from collections.abc import Iterable
from pathlib import Path

from volsched.lab.stack.identity import Identity, marked, process_of, send
from volsched.lab.stack.services import Definition, in_order
from volsched.lab.stack.states import read_published

LOOK_SECONDS = 0.05
GRACE_SECONDS = 10.0
"""For processes of which nobody knows any more what they are."""


def leftovers(directory: Path) -> dict[Identity, str]:
    """Processes of the stack in this directory, and the service of each ("" where it was never written down).

    Written down with their start time, or carrying the stack's mark; whatever else has their pid is a stranger.
    """
    published = read_published(directory)
    known = {it.process: it.service for it in published.instances if it.process} if published else {}
    found = {it: service for it, service in known.items() if process_of(it) is not None}
    pids = {it.pid for it in found}
    return found | {it: "" for it in marked(directory) if it.pid not in pids}


def clean(directory: Path, definition: Definition | None) -> list[tuple[int, str]]:
    """End what was left, the users of a service before it; pid and service of each that was ended."""
    left = leftovers(directory)
    order = [it.name for it in in_order(definition.services)] if definition else []
    services = definition.by_name() if definition else {}
    for name in ["", *reversed(order)]:
        them = [it for it, service in left.items() if service == name]
        known = services.get(name)
        number = signal.Signals[known.stop_signal] if known else signal.SIGTERM
        end_all(them, number, known.grace if known else GRACE_SECONDS)
    return [(it.pid, service) for it, service in left.items()]


def end_all(them: Iterable[Identity], number: signal.Signals, grace: float) -> None:
    """Ask, wait, and after the grace kill the whole session of each."""
    asked = [it for it in them if send(it, number)]
    for it in asked:
        send(it, signal.SIGCONT)
    end = time.monotonic() + grace
    while time.monotonic() < end and any(process_of(it) for it in asked):
        time.sleep(LOOK_SECONDS)
    for it in asked:
        send(it, signal.SIGKILL, group=True)
    while any(process_of(it) for it in asked):
        time.sleep(LOOK_SECONDS)
