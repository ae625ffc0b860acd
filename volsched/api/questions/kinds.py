"""The resources of ours that kubectl can get, and the columns in which it shows them."""

from collections.abc import Callable, Mapping
from typing import Any

from volsched.api.questions.lists import Cell, ListKind
from volsched.questions.get.cells import age, listed, shown
from volsched.runtime.clock import parse_rfc3339

Manifest = Mapping[str, Any]


def _field(part: str, name: str) -> Callable[[Manifest, int], str]:
    return lambda item, _: shown(item.get(part, {}).get(name))


def _age(item: Manifest, now: int) -> str:
    made = item["metadata"].get("creationTimestamp")
    return age(None if made is None else parse_rfc3339(made), now)


def _volumes(name: str) -> Callable[[Manifest, int], str]:
    def cell(item: Manifest, _: int) -> str:
        legs = item["status"].get(name, ())
        return listed(f"{it['claim'].rpartition('/')[2]}→{it.get('volume') or '?'}:{it['state']}" for it in legs)

    return cell


NAME = Cell("NAME", _field("metadata", "name"))
AGE = Cell("AGE", _age)
READ = ("get", "list")

BINDINGS = ListKind(
    "bindings",
    "binding",
    "Binding",
    namespaced=True,
    verbs=READ,
)
ATTEMPTS = ListKind(
    "attempts",
    "attempt",
    "Attempt",
    namespaced=True,
    verbs=READ,
)
EFFECTS = ListKind(
    "effects",
    "effect",
    "Effect",
    namespaced=False,
    verbs=READ,
    cells=(
        NAME,
        Cell("QUEUE", _field("status", "queue")),
        Cell("STATE", _field("status", "state")),
        Cell("ATTEMPTS", _field("status", "attempts")),
        Cell("DUE", _field("status", "dueAt")),
        Cell("ERROR", _field("status", "error")),
        Cell("BINDING", _field("status", "binding"), wide=True),
    ),
    subresources={"retry": "Reason", "cancel": "Reason"},
)
RESERVATIONS = ListKind(
    "reservations",
    "reservation",
    "Reservation",
    namespaced=True,
    verbs=("create", "delete", "patch", *READ),
    cells=(
        NAME,
        Cell("POD", _field("spec", "pod")),
        Cell("NODE", _field("status", "node")),
        Cell("PHASE", _field("status", "phase")),
        Cell("EXPIRES", _field("status", "expiresAt")),
        AGE,
        Cell("VOLUMES", _volumes("claims"), wide=True),
    ),
    short=("rsv",),
    subresources={"confirm": "Reservation", "renew": "Renewal"},
)
KINDS = (BINDINGS, ATTEMPTS, EFFECTS, RESERVATIONS)
