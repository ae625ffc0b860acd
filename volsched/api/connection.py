"""Connections of the server: timeouts for slow clients, and the client's certificate."""

import asyncio
from typing import Any

from starlette.types import Scope
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from volsched.api.limits import DEFAULT_LIMITS, MOST_HEADER_BYTES, Limits

# Client timeouts: uvicorn waits without limit for headers that come a byte at a time.

GRACE_SECONDS = 5
"""Added to the limit of a body: its reader reports the timeout in an answer, and needs a moment for that."""
LEAST_READ = 2**14
"""Bytes of an answer that a client must read within `read_seconds`; else its connection is closed."""
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class LimitsConfig(Config):
    """uvicorn's configuration, with the limits of connections."""

    limits: Limits = DEFAULT_LIMITS


class TimedProtocol(HttpToolsProtocol):
    """One timer from the first byte of a connection or request to its headers' end, then to its body's end; and
    one while an answer waits to be read."""

    def __init__(self, config: Config, *args: Any, **named: Any) -> None:
        super().__init__(config, *args, **named)
        self._limits = config.limits if isinstance(config, LimitsConfig) else DEFAULT_LIMITS
        self._timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        """Bytes received since the parser last reported anything but a header: end of headers, body part, end."""
        self._field_bytes = 0
        """Bytes of the current request's header fields: they may all come in one piece, with their end."""
        self._refused = False
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(self._limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        self._stop_reading_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_reading_timer()

    def _wait_for_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()

        def check() -> None:
            if unread - self.transport.get_write_buffer_size() >= LEAST_READ:
                self._wait_for_reading()
            else:
                # Closing would wait until the rest is read.
                self.transport.abort()

        self._stop_reading_timer()
        self._reading = self.loop.call_later(self._limits.read_seconds, check)

    def _stop_reading_timer(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._reading = None

    def data_received(self, data: bytes) -> None:
        if self._timer is None:
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
            # The application is not called; the rest is not read either.
            self._refuse(TOO_LONG)
            return
        self._wait(self._limits.body_seconds + GRACE_SECONDS)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        # The reader of the body counts its bytes; `_head_bytes` counts chunk sizes and trailers.
        self._head_bytes = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._wait(None)
        if not self._refused:
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """uvicorn would log what to install. The request is answered as one without an upgrade, and the client
        reports that (`kubectl exec`)."""

    def _wait(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._refuse, TOO_SLOW)

    def _refuse(self, answer: bytes) -> None:
        self._refused = True
        self._wait(None)
        if self.transport.is_closing():
            return
        # An answer that has begun must not be answered again.
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(answer)
        self.transport.close()


# A connection that knows its client certificate: uvicorn itself does not provide it.

CERTIFICATE = "volsched.certificate"


CLOSING_SECONDS = 0.25
"""How long a client may take to close; one that idles in a connection pool never does."""


class Connection(TimedProtocol):
    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing():
            self.loop.call_later(CLOSING_SECONDS, self.transport.abort)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Each request's scope gets a copy; the given dictionary is shared by all connections.
        self.app_state = {**self.app_state, CERTIFICATE: transport.get_extra_info("peercert") or None}


def certificate_of(scope: Scope) -> dict[str, Any] | None:
    """The verified certificate of the client, if it sent one."""
    certificate: dict[str, Any] | None = scope.get("state", {}).get(CERTIFICATE)
    return certificate
