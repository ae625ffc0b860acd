"""Reads of the history become part of it: who asked what, before they are answered."""

from volsched.log.commands import Command
from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.streams import AUDIT_READS

LONGEST_QUESTION = 500


def asking(actor: str, question: str, client: str | None) -> Command:
    """Written by the process's writer, with whatever else is waiting: a read costs a part of a commit."""
    shown = "".join(char if char.isprintable() else "?" for char in question)
    cut = shown if len(shown) <= LONGEST_QUESTION else f"{shown[: LONGEST_QUESTION - 1]}…"
    data = {"question": cut} | ({} if client is None else {"client": client})

    def decide(_: States) -> Decision:
        return Decision(events=(NewEvent(stream=AUDIT_READS, type="AuditRead", data=data),))

    return Command(actor=actor, streams=(AUDIT_READS,), decide=decide)
