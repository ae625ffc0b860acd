"""A client that costs next to nothing: bare sockets and one loop, so that what is measured is the server.

A library's client takes more of a core for each answer than the server does, and on a small machine the two share
it.
"""

import selectors
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

Clock = Callable[[], float]
Request = bytes
CHUNK = 1 << 18
STALLED_SECONDS = 30.0


class HttpLoadError(Exception):
    """The server did not do what is measured; the message says what it did."""


def request(method: str, path: str, body: bytes = b"") -> Request:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


@contextmanager
def connected(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        made = [socket.create_connection(("127.0.0.1", port), timeout=STALLED_SECONDS) for _ in range(count)]
        for it in made:
            stack.enter_context(it)
            it.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield made


@dataclass(slots=True)
class LoadCaller:
    """One connection that is asked and answers, one request at a time."""

    socket: socket.socket
    got: bytes = b""
    sent_at: float = 0.0
    busy: bool = False

    def ask(self, asked: Request, now: float) -> None:
        self.sent_at, self.busy, self.got = now, True, b""
        self.socket.sendall(asked)

    def read(self) -> bool:
        """True once the answer is whole."""
        part = self.socket.recv(CHUNK)
        if not part:
            raise HttpLoadError("the server has closed the connection")
        self.got += part
        head, ended, rest = self.got.partition(b"\r\n\r\n")
        if not ended:
            return False
        if head[9:10] != b"2":
            raise HttpLoadError(f"the server answered: {self.got[:500].decode(errors='replace')}")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
        self.busy = len(rest) < length
        return not self.busy


def answer(port: int, asked: Request) -> bytes:
    """One answer's body."""
    with connected(port, 1) as (one,):
        caller = LoadCaller(one)
        caller.ask(asked, 0.0)
        while not caller.read():
            pass
        return caller.got.partition(b"\r\n\r\n")[2]


def hurry(port: int, requests: Iterable[Request], *, callers: int, clock: Clock) -> tuple[int, float]:
    """As many as the server takes, on so many connections; answers how many there were, and the seconds."""
    waiting, count = iter(requests), 0
    with connected(port, callers) as sockets, selectors.DefaultSelector() as selector:
        begun = clock()
        for it in sockets:
            caller = LoadCaller(it)
            asked = next(waiting, None)
            if asked is not None:
                caller.ask(asked, 0.0)
                selector.register(it, selectors.EVENT_READ, caller)
        while selector.get_map():
            for key, _ in _ready(selector):
                caller = key.data
                if caller.read():
                    count += 1
                    asked = next(waiting, None)
                    if asked is None:
                        selector.unregister(caller.socket)
                    else:
                        caller.ask(asked, 0.0)
        return count, clock() - begun


@dataclass(slots=True)
class Watcher:
    """One watch. Every watcher must get the same lines, so it is enough to read those of one."""

    socket: socket.socket
    begun: bool = False
    rest: bytes = b""
    lines: list[bytes] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def read(self, now: float) -> None:
        part = self.socket.recv(CHUNK)
        if not part:
            raise HttpLoadError("the server has ended a watch")
        self.rest += part
        if not self.begun:
            head, ended, after = self.rest.partition(b"\r\n\r\n")
            if not ended:
                return
            if b" 200 " not in head[:20]:
                raise HttpLoadError(f"a watch was answered: {self.rest[:500].decode(errors='replace')}")
            self.begun, self.rest = True, after
        self._take_chunks(now)

    def _take_chunks(self, now: float) -> None:
        while True:
            size, ended, after = self.rest.partition(b"\r\n")
            if not ended:
                return
            length = int(size, 16)
            if len(after) < length + 2:
                return
            self.rest = after[length + 2 :]
            # A chunk holds whole lines: the server says all that is new at a time.
            for line in after[:length].splitlines():
                self.lines.append(line)
                self.times.append(now)


@dataclass(frozen=True, slots=True)
class Fanned:
    """What became of writes that many watched."""

    seconds: float
    cost: float
    """Of the server, in the seconds that `cost` counts."""
    writes: int
    latencies: tuple[float, ...]
    """From when a write was sent until a watcher had it, for every watcher and write."""


def fan_out(
    port: int,
    watch: Request,
    writes: Iterable[Request],
    *,
    watchers: int,
    callers: int,
    a_second: float,
    clock: Clock,
    cost: Clock,
) -> Fanned:
    """Send the writes at a steady pace while so many watch; LoadError unless all get all of them, in order."""
    waiting, total = list(writes), 0
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        watching = [Watcher(it) for it in stack.enter_context(connected(port, watchers))]
        calling = [LoadCaller(it) for it in stack.enter_context(connected(port, callers))]
        for entry in watching:
            entry.socket.sendall(watch)
            selector.register(entry.socket, selectors.EVENT_READ, entry)
        for caller in calling:
            selector.register(caller.socket, selectors.EVENT_READ, caller)
        while not all(it.begun for it in watching):
            _step(selector, clock, {}, STALLED_SECONDS)
        begun, spent, sent_at, total = clock(), cost(), dict[bytes, float](), len(waiting)
        waiting.reverse()
        while waiting or any(it.busy for it in calling) or any(len(it.lines) < total for it in watching):
            now = clock()
            due = begun + (total - len(waiting)) / a_second
            free = next((it for it in calling if not it.busy), None)
            if waiting and due <= now and free is not None:
                free.ask(waiting.pop(), now)
                continue
            _step(selector, clock, sent_at, min(max(due - now, 0), 1.0) if waiting and free else STALLED_SECONDS)
        seconds, spent = clock() - begun, cost() - spent
    return Fanned(seconds, spent, total, tuple(_latencies(watching, sent_at)))


def _step(selector: selectors.BaseSelector, clock: Clock, sent_at: dict[bytes, float], seconds: float) -> None:
    ready = _ready(selector, seconds)
    now = clock()
    for key, _ in ready:
        entry = key.data
        if isinstance(entry, Watcher):
            entry.read(now)
        elif entry.read():
            sent_at[_version(entry.got)] = entry.sent_at


def _ready(
    selector: selectors.BaseSelector, seconds: float = STALLED_SECONDS
) -> list[tuple[selectors.SelectorKey, int]]:
    ready = selector.select(seconds)
    if not ready and seconds >= STALLED_SECONDS:
        raise HttpLoadError(f"the server has said nothing for {STALLED_SECONDS:g} s")
    return ready


def _version(text: bytes) -> bytes:
    return text.partition(b'"resourceVersion":"')[2].partition(b'"')[0]


def _latencies(watching: list[Watcher], sent_at: dict[bytes, float]) -> Iterator[float]:
    first = watching[0].lines
    versions = [_version(line) for line in first]
    if list(map(int, versions)) != sorted(map(int, sent_at)):
        raise HttpLoadError("a watcher was not told of every write, once and in order")
    for entry in watching:
        if entry.lines != first:
            raise HttpLoadError("two watchers of the same were told different things")
        for version, at in zip(versions, entry.times, strict=True):
            yield at - sent_at[version]
