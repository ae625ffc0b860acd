"""A connection that tells whose certificate it was opened with: uvicorn itself does not."""

import asyncio
from typing import Any

from starlette.types import Scope

from volsched.api.timeouts import Patient

CERTIFICATE = "volsched.certificate"


CLOSING_SECONDS = 0.25
"""How long a client may take to say goodbye; one that rests in a pool of connections never does."""


class Connection(Patient):
    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing():
            self.loop.call_later(CLOSING_SECONDS, self.transport.abort)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Each request's scope gets a copy of it; the dictionary that was given is shared by all connections.
        self.app_state = {**self.app_state, CERTIFICATE: transport.get_extra_info("peercert") or None}


def certificate_of(scope: Scope) -> dict[str, Any] | None:
    """The verified certificate of the client, if it has shown one."""
    found: dict[str, Any] | None = scope.get("state", {}).get(CERTIFICATE)
    return found
