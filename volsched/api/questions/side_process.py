"""A process beside the server for long questions: they block no other request, and end at their time limit.

A thread would not do. It takes the interpreter from the event loop and from the writer a few milliseconds at a
time, which makes a commit several times as long, and it cannot be killed. The process is kept for the next
question, reads the database on its own, and ends with the server, when its input is closed.
"""

import logging
import os
import pickle
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from volsched.api.kubernetes.negotiation import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.operations import Context, OperationRequest
from volsched.api.questions.request_reader import error_of
from volsched.api.questions.routes import OPERATIONS
from volsched.api.services import Services
from volsched.api.watch_cache import Fan
from volsched.log.commands import Command, Done
from volsched.log.database import Database, open_database
from volsched.runtime.clock import system_clock
from volsched.runtime.writer import Writer
from volsched.scheduling.pod_reservations import Reserver
from volsched.scheduling.rules.configuration import Configuration

READY = b"ready"
_LENGTH = struct.Struct(">Q")
_PART = 2**16
NICENESS = 5
"""The server's own process has priority."""
START_SECONDS = 120
"""Limit for loading the program on a busy machine; the question's own limit begins after it."""
LOST = "the process that worked on it has ended; try again"
_log = logging.getLogger("volsched.api")


class UnsendableError(Exception):
    """The configuration holds something that cannot be pickled, such as a plugin that a caller has made."""


@dataclass(slots=True)
class SideProcesses:
    database: Database
    configuration: Configuration
    _idle: list["_Side"] = field(default_factory=list)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False
    _begun: bool = False

    def serve(self, operation: int, request: OperationRequest, *, seconds: float) -> HttpAnswer:
        """The operation's answer, in the calling thread; ApiError 504 when its time is over."""
        with self._turn:
            self._begun = True
            side = self._idle.pop() if self._idle else None
        side = side or _Side.started(self.database, self.configuration)
        try:
            answer, refusal, reusable = side.ask((operation, request), seconds=seconds), None, True
        except TimeoutError:
            problem = (
                f"it took longer than {seconds:g} s, and was ended; ask about less, or on the machine of the store"
            )
            answer, refusal, reusable = None, ApiError(504, problem), False
        except (OSError, EOFError, pickle.UnpicklingError):
            answer, refusal, reusable = None, ApiError(503, LOST, details={"retryAfterSeconds": 1}), False
        with self._turn:
            if reusable and not self._closed:
                self._idle.append(side)
            else:
                side.end()
        if refusal is not None:
            raise refusal
        if isinstance(answer, HttpAnswer):
            return answer
        code, message, reason, details = answer
        raise ApiError(code, message, reason=reason, details=details)

    def warm(self) -> None:
        """Start the first one before its question comes: loading the program takes longer than most answers."""
        with self._turn:
            if not self._begun and not self._closed:
                self._begun = True
                self._idle.append(_Side.started(self.database, self.configuration))

    def close(self) -> None:
        with self._turn:
            self._closed = True
            for side in self._idle:
                side.end()
            self._idle.clear()


@dataclass(slots=True)
class _Side:
    process: "subprocess.Popen[bytes]"
    _ready: bool = False

    @classmethod
    def started(cls, database: Database, configuration: Configuration) -> "_Side":
        # Sent through its input: every user of the machine can read arguments, and the URL may hold a password.
        url = database.engine.url.render_as_string(hide_password=False)
        try:
            settings = pickle.dumps((url, configuration))
        except Exception as error:
            raise UnsendableError(str(error)) from error
        command = [sys.executable, "-m", "volsched.api.questions.side_process"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        _write(process.stdin, settings)
        return cls(process)

    def ask(self, question: Any, *, seconds: float) -> Any:
        """TimeoutError after so many seconds; EOFError where the process does not start."""
        stdin = self.process.stdin
        assert stdin is not None
        if not self._ready:
            try:
                self._message(START_SECONDS)
            except TimeoutError:
                raise EOFError from None
            self._ready = True
        _write(stdin, pickle.dumps(question))
        return pickle.loads(self._message(seconds))

    def _message(self, seconds: float) -> bytes:
        stdout, until = self.process.stdout, time.monotonic() + seconds
        assert stdout is not None
        descriptor = stdout.fileno()

        def read(size: int) -> bytes:
            ready, _, _ = select.select([descriptor], [], [], max(until - time.monotonic(), 0))
            if not ready:
                raise TimeoutError
            return os.read(descriptor, size)

        return _read(read)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                # Closing flushes the rest of a question; the process may have died before it read all of it.
                with suppress(BrokenPipeError):
                    pipe.close()


def _write(out: IO[bytes], message: bytes) -> None:
    out.write(_LENGTH.pack(len(message)) + message)
    out.flush()


def _read(read: Callable[[int], bytes]) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(read, _LENGTH.size))
    return _exactly(read, length)


def _exactly(read: Callable[[int], bytes], size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        part = read(min(size - len(got), _PART))
        if not part:
            raise EOFError
        got += part
    return bytes(got)


# --- in the other process -------------------------------------------------------------------------------


def main() -> None:
    os.nice(NICENESS)
    # Output printed by other code must not be mixed into the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def read(size: int) -> bytes:
        return os.read(0, size)

    try:
        url, configuration = pickle.loads(_read(read))
        context = _context(open_database(url, name="volsched-questions"), configuration)
        _write(out, READY)
        while True:
            operation, request = pickle.loads(_read(read))
            _write(out, pickle.dumps(_answer(context, operation, request)))
    except (EOFError, KeyboardInterrupt, BrokenPipeError):
        return


def _answer(context: Context, operation: int, request: OperationRequest) -> Any:
    try:
        return OPERATIONS[operation].serve(context, request).serialised(packed=request.unpacks)
    except Exception as error:
        api_error = error_of(error)
        if api_error.code == 500:
            _log.error("%s failed", OPERATIONS[operation].path, exc_info=error)
        return api_error.code, str(api_error), api_error.reason, dict(api_error.details)


def _context(database: Database, configuration: Configuration) -> Context:
    def append(_: Command) -> Done:
        raise ApiError(405, "nothing is written from here")

    services = Services(database, Writer(database), Fan(), system_clock, "questions")
    reserver = Reserver(database, append, lambda: "", configuration)
    return Context(services=services, configuration=configuration, reserver=reserver)


if __name__ == "__main__":
    main()
