"""Faults between an API server and its client, and the requests they apply to. Pure."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ServerFault(StrEnum):
    TOO_MANY = "too-many-requests"
    """429 in plain text with Retry-After, as priority and fairness answers; nothing is executed."""
    LAGGING = "lagging-replica"
    """504 with cause ResourceVersionTooLarge: the replica that answers is behind."""
    STALE = "stale-list"
    """A list from a replica that is some writes behind the others, with its older version."""
    NOT_STREAMED = "no-streamed-lists"
    """422 on sendInitialEvents, as from a server without the feature."""
    EXPIRED_PAGE = "expired-page"
    """410 for the next page of a list, with a token for an inconsistent rest."""
    SILENT = "silent-watch"
    """The watch opens, and then sends nothing: a half-open connection."""
    CUT = "cut-watch"
    """A watch, even one that is open already, breaks in the middle of its next line, without the closing chunk."""
    SLOW = "slow-watch"
    """A watch's events are delayed by so many seconds."""
    LOST = "lost-answer"
    """A write is committed, and the connection breaks before its answer."""
    LATE = "late-write"
    """The connection breaks at once, and the write is committed so many seconds later: a late write."""


WATCH, LIST, GET, WRITE = "watch", "list", "get", "write"
_CONCERNS = {
    ServerFault.TOO_MANY: {WATCH, LIST, GET, WRITE},
    ServerFault.LAGGING: {LIST, GET},
    ServerFault.STALE: {LIST},
    ServerFault.NOT_STREAMED: {WATCH},
    ServerFault.EXPIRED_PAGE: {LIST},
    ServerFault.SILENT: {WATCH},
    ServerFault.CUT: {WATCH},
    ServerFault.SLOW: {WATCH},
    ServerFault.LOST: {WRITE},
    ServerFault.LATE: {WRITE},
}


class FaultRequestError(ValueError):
    """The request names no fault; the message lists them."""


@dataclass(frozen=True, slots=True)
class RequestShape:
    verb: str
    """`watch`, `list`, `get` or `write`."""
    plural: str
    streamed: bool = False
    """Whether it requests a streamed list."""
    is_further_page: bool = False
    """Whether it requests a further page."""
    client: str = ""
    """Its User-Agent."""


@dataclass(slots=True)
class ArmedFault:
    fault: ServerFault
    plural: str | None = None
    """Only requests of this resource; None: of any."""
    times: int = 1
    seconds: float = 1.0
    client: str = ""
    """Only requests of clients whose User-Agent begins so."""

    def concerns(self, request: RequestShape) -> bool:
        if request.verb not in _CONCERNS[self.fault] or self.plural not in (None, request.plural):
            return False
        if not request.client.startswith(self.client):
            return False
        if self.fault is ServerFault.NOT_STREAMED:
            return request.streamed
        return request.is_further_page if self.fault is ServerFault.EXPIRED_PAGE else True


@dataclass(slots=True)
class ArmedFaults:
    """Faults in the order of arming; each is removed after it has happened `times` times."""

    armed: list[ArmedFault] = field(default_factory=list)

    def take(self, request: RequestShape, *, only: ServerFault | None = None) -> ArmedFault | None:
        for fault in self.armed:
            if fault.concerns(request) and only in (None, fault.fault):
                fault.times -= 1
                if fault.times <= 0:
                    self.armed.remove(fault)
                return fault
        return None


def read_fault(order: Any) -> ArmedFault:
    """From an order such as `{"fault": "silent-watch", "resource": "nodes", "times": 2, "seconds": 0.5}`.

    With `"client": "volsched"`, only requests of that client are affected.
    """
    if not isinstance(order, dict) or order.get("fault") not in tuple(ServerFault):
        raise FaultRequestError(f"fault must be one of {', '.join(ServerFault)}")
    times, seconds, plural = order.get("times", 1), order.get("seconds", 1.0), order.get("resource")
    if not isinstance(times, int) or times < 1:
        raise FaultRequestError("times must be a whole number above 0")
    if not isinstance(seconds, int | float) or not 0 <= seconds <= 600:
        raise FaultRequestError("seconds must be a number from 0 to 600")
    if plural is not None and not isinstance(plural, str):
        raise FaultRequestError("resource must be a plural name, as in the path: nodes")
    client = order.get("client", "")
    if not isinstance(client, str):
        raise FaultRequestError("client must be how the User-Agent begins: volsched")
    return ArmedFault(ServerFault(order["fault"]), plural, times, float(seconds), client)


def fault_order(armed: ArmedFault) -> dict[str, Any]:
    """The order for a fault."""
    order = {"fault": armed.fault.value, "resource": armed.plural, "times": armed.times, "seconds": armed.seconds}
    order |= {"client": armed.client} if armed.client else {}
    return {name: value for name, value in order.items() if value is not None}
