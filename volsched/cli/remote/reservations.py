"""`volsched reservations` over HTTP."""

from collections.abc import Mapping
from typing import Any

from volsched.cli.console import Exit, fail
from volsched.cli.remote import paths
from volsched.cli.remote.server import RemoteServer, ServerRefusedError
from volsched.questions.audit.answers import Item

PAGE = 1_000
UNSCHEDULABLE = "Unschedulable"


def held(server: RemoteServer, namespace: str | None, *, most: int) -> list[Item]:
    """Those that are held now, the oldest first."""
    query = {"limit": min(most, PAGE)}
    return [item_of(it) for it in server.get(paths.own("reservations", namespace=namespace), query)["items"]]


def reserve(server: RemoteServer, pod: str, *, node: str | None, seconds: int, key: str | None) -> Item:
    namespace, _, name = pod.partition("/")
    spec = {"pod": name, "ttlSeconds": seconds} | ({} if node is None else {"node": node})
    more = {} if key is None else {"Idempotency-Key": key}
    try:
        path = paths.own("reservations", namespace=namespace)
        return item_of(server.tell("POST", path, body={"spec": spec}, more=more).body)
    except ServerRefusedError as error:
        if error.reason != UNSCHEDULABLE:
            server.refuse(error)
        fail(Exit.UNSATISFIABLE, str(error), f"see why: volsched audit why {error.details.get('name')}")


def confirm(server: RemoteServer, name: str) -> Item:
    return item_of(server.ask("POST", f"{_path(server, name)}/confirm"))


def renew(server: RemoteServer, name: str, *, seconds: int) -> Item:
    return item_of(server.ask("POST", f"{_path(server, name)}/renew", body={"ttlSeconds": seconds}))


def cancel(server: RemoteServer, name: str, *, reason: str | None) -> str:
    """Why it has ended; said again, what was said first."""
    path = _path(server, name)
    try:
        return str(server.tell("DELETE", path, query={"reason": reason}).body["status"]["reason"])
    except ServerRefusedError as error:
        if error.code != 404:
            server.refuse(error)
        return str(_binding(server, name)["status"].get("reason"))


def item_of(manifest: Mapping[str, Any]) -> Item:
    """A Reservation in the form in which the command line shows it."""
    head, status = manifest["metadata"], manifest["status"]
    return {
        "reservation": head["name"],
        "pod": f"{head['namespace']}/{manifest['spec']['pod']}",
        "node": status["node"],
        "state": status["state"],
        "expiresAt": status.get("expiresAt"),
        "legs": [
            {"claim": it["claim"], "volume": it.get("volume"), "state": it["state"]} for it in status["claims"]
        ],
    }


def _path(server: RemoteServer, name: str) -> str:
    """It lies in the namespace of its pod, which people do not name."""
    namespace = _binding(server, name)["metadata"]["namespace"]
    return paths.own("reservations", name, namespace=namespace)


def _binding(server: RemoteServer, name: str) -> Mapping[str, Any]:
    found = server.get(paths.own("bindings"), {"name": name})["items"]
    if not found:
        fail(Exit.NOT_FOUND, f'reservation "{name}" not found')
    binding: Mapping[str, Any] = found[0]
    return binding
