"""How long a connection waits for its client: uvicorn waits for ever for headers that come a byte at a time."""

import asyncio
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from volsched.api.limits import DEFAULT_LIMITS, MOST_HEADER_BYTES, Limits

GRACE_SECONDS = 5
"""Beyond what a body may take: whoever reads it says so in an answer, and is given the time to."""
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PatientConfig(Config):
    """uvicorn's, with the limits that connections keep."""

    limits: Limits = DEFAULT_LIMITS


class Patient(HttpToolsProtocol):
    """One timer: from a connection's or request's first byte to its headers' end, and from there to its body's."""

    def __init__(self, config: Config, *args: Any, **named: Any) -> None:
        super().__init__(config, *args, **named)
        self._limits = config.limits if isinstance(config, PatientConfig) else DEFAULT_LIMITS
        self._patience: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        """Since there was last anything that is no header: the end of headers, a part of a body, its end."""
        self._field_bytes = 0
        """Of the fields of the request that is being read: they may all come in one piece, with their end."""
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(self._limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._patience is None:
            self._wait(self._limits.header_seconds)
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > MOST_HEADER_BYTES:
            self._refuse(TOO_LONG)

    def on_message_begin(self) -> None:
        self._field_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._field_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._field_bytes += len(name) + len(value)
        if self._field_bytes <= MOST_HEADER_BYTES:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        if self._field_bytes > MOST_HEADER_BYTES or self._refused:
            # Nobody is asked to serve it; what follows is not read either.
            self._refuse(TOO_LONG)
            return
        self._wait(self._limits.body_seconds + GRACE_SECONDS)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        # Whoever reads the body counts it. What stands around its chunks, and behind the last, is counted here.
        self._head_bytes = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._wait(None)
        if not self._refused:
            super().on_message_complete()

    def _wait(self, seconds: float | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = None if seconds is None else self.loop.call_later(seconds, self._refuse, TOO_SLOW)

    def _refuse(self, why: bytes) -> None:
        self._refused = True
        self._wait(None)
        if self.transport.is_closing():
            return
        # What was begun to be answered is not for us to answer.
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(why)
        self.transport.close()
