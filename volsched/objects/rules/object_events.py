"""The events of an object's stream: created, changed, deleted. Nobody else spells their names."""

from collections.abc import Mapping
from typing import Any

from volsched.log.events.catalogue import TITLES
from volsched.log.events.envelope import NewEvent
from volsched.log.events.streams import noun_and_key

Data = Mapping[str, Any]


def created_event(stream: str, manifest: Data) -> NewEvent:
    return NewEvent(stream=stream, type=f"{_title(stream)}Created", data={"patch": manifest})


def changed_event(stream: str, patch: Data, *, binding: str | None = None) -> NewEvent:
    return NewEvent(stream=stream, type=f"{_title(stream)}Changed", data={"patch": patch}, binding=binding)


def deleted_event(stream: str, reason: str | None = None) -> NewEvent:
    return NewEvent(
        stream=stream, type=f"{_title(stream)}Deleted", data={} if reason is None else {"reason": reason}
    )


def is_creation(event: NewEvent) -> bool:
    return event.type.endswith("Created")


def is_deletion(event: NewEvent) -> bool:
    return event.type.endswith("Deleted")


def _title(stream: str) -> str:
    return TITLES[noun_and_key(stream)[0]]
