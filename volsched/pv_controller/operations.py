"""Long operations of the PV controller (provision, delete, recycle): one of a name at a time, stepped.

An operation is a generator like a sync, but it goes call by call: each of its requests to the store is a command
of its own, conditional on what the operation has seen and on the controller's lease. Operations that want
something at the same time share a transaction. One stands still while it pauses and while a provisioner works, and
goes on at a later step.

Nothing of it is stored. After a crash the resync starts it again, and it finds what was done before by the name of
the volume.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from volsched.log.commands import Command, DeposedError, Done, LeaseProof, Outcome, RejectedError, version_of
from volsched.log.database import Database
from volsched.log.events.streams import stream_of
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.provisioning.protocol import Provisioner, Unfinished
from volsched.pv_controller.calls import PluginCall, StoreCall, ask, no_answer, reply_to, store_command, stored_by
from volsched.pv_controller.notice_throttle import Said
from volsched.pv_controller.rules import (
    Enqueue,
    LiveGet,
    Notice,
    Pause,
    PluginError,
    Provision,
    Request,
    StartOperation,
    Steps,
    SyncError,
)
from volsched.runtime.clock import MILLISECOND, SECOND

FIRST_BACKOFF = 500 * MILLISECOND
LONGEST_BACKOFF = 122 * SECOND
PATIENCE = 60 * SECOND
"""How long a provisioner may take before the claim is told; then it is asked again, from the beginning."""
COMPONENT = "persistentvolume-controller"
Key = tuple[str, str]


@dataclass(slots=True)
class _Running:
    name: str
    key: Key
    """The object whose sync started it."""
    steps: Steps[None]
    request: Request | None = None
    """Asked, and not answered yet."""
    reply: Any = None
    error: Exception | None = None
    due: int = 0
    called_at: int | None = None
    """When the provisioner was first asked what it has not answered yet."""
    seen: dict[str, int] = field(default_factory=dict)
    """Stream → the version that was read live since the last call of a provisioner."""
    checked: bool = False
    """What was seen is still so: what cannot be undone may be done."""
    making: str = ""
    """The volume that it has a provisioner make."""
    wanted_again: bool = False

    def answer(self, reply: Any) -> None:
        self.request, self.reply, self.error = None, reply, None

    def fail(self, error: Exception) -> None:
        self.request, self.reply, self.error = None, None, error


@dataclass(frozen=True, slots=True)
class _Backoff:
    key: Key
    wait: int
    until: int


@dataclass(slots=True)
class Operations:
    database: Database
    owner: str
    provisioners: Mapping[str, Provisioner]
    new_uid: Callable[[], str]
    said: Said
    look_again: Callable[[Key, int], None]
    """Have the object synced at that time."""
    in_doubt: Callable[[str], None]
    """Storage may be left behind for a volume of that name."""
    _running: dict[str, _Running] = field(default_factory=dict)
    _backoffs: dict[str, _Backoff] = field(default_factory=dict)
    _notices: list[Notice] = field(default_factory=list)

    def start(self, start: StartOperation, key: Key, now: int) -> None:
        """Run it from the next step on, unless one of that name runs or backs off after an error."""
        running, backoff = self._running.get(start.name), self._backoffs.get(start.name)
        if running is not None:
            running.wanted_again = True
        elif backoff is not None and now < backoff.until:
            self.look_again(key, backoff.until)
        else:
            self._running[start.name] = _Running(start.name, key, start.operation)

    def step(self, now: int, lease: LeaseProof) -> int:
        """Take every operation as far as it gets now; answers how many of their requests were answered."""
        ready = [it for it in self._running.values() if it.due <= now]
        progress = 0
        while ready:
            asked: list[tuple[_Running, Command]] = []
            for it in ready:
                progress += self._go_on(it, asked, now, lease)
            if not self._execute(asked, now):
                break
            ready = [it for it, _ in asked if it.name in self._running]
        return progress

    def next_due(self) -> int | None:
        return min((it.due for it in self._running.values()), default=None)

    def making(self) -> frozenset[str]:
        """Volumes for which there may be storage before there is an object."""
        return frozenset(it.making for it in self._running.values() if it.making)

    def forget(self, key: Key) -> None:
        """The object is gone; what still runs for it comes to its end."""
        for name in [name for name, it in self._backoffs.items() if it.key == key]:
            del self._backoffs[name]

    def clear(self) -> None:
        """Somebody else leads now, and starts anew what is unfinished."""
        for it in self._running.values():
            it.steps.close()
        self._running.clear()
        self._backoffs.clear()

    # --- one operation ----------------------------------------------------------------------------------

    def _go_on(self, it: _Running, asked: list[tuple[_Running, Command]], now: int, lease: LeaseProof) -> int:
        """On until it wants something of the store, waits, or has ended; answers how far that was."""
        moves = 0
        while True:
            if it.request is None:
                moves += 1
                if not self._resume(it, now):
                    return moves
            request = it.request
            if isinstance(request, Notice):
                self._notices.append(request)
                it.answer(None)
            elif isinstance(request, Enqueue):
                self.look_again((request.kind, request.key), now)
                it.answer(None)
            elif isinstance(request, Pause):
                it.answer(None)
                it.due = now + request.seconds * SECOND
                return moves
            elif isinstance(request, PluginCall):
                if it.seen and not it.checked and not isinstance(request, Provision):
                    asked.append((it, door.unchanged(dict(it.seen), actor=self.owner).under(lease)))
                    return moves
                if not self._call(it, request, now):
                    return moves
            elif isinstance(request, StoreCall):
                asked.append((it, self._storing(request, now, lease)))
                return moves
            else:
                it.fail(SyncError(f"{type(request).__name__} is not for operations"))

    def _resume(self, it: _Running, now: int) -> bool:
        """Hand the answer in; False: the operation has ended."""
        error, it.error = it.error, None
        try:
            it.request = it.steps.send(it.reply) if error is None else it.steps.throw(error)
        except StopIteration:
            self._end(it, now)
            return False
        except (SyncError, PluginError, RejectedError):
            self._back_off(it, now)
            return False
        return True

    def _end(self, it: _Running, now: int) -> None:
        del self._running[it.name]
        self._backoffs.pop(it.name, None)
        if it.wanted_again:
            # Something changed while it ran, and was not looked at.
            self.look_again(it.key, now)

    def _back_off(self, it: _Running, now: int) -> None:
        del self._running[it.name]
        if it.making:
            self.in_doubt(it.making)
        before = self._backoffs.get(it.name)
        wait = FIRST_BACKOFF if before is None else min(before.wait * 2, LONGEST_BACKOFF)
        self._backoffs[it.name] = _Backoff(it.key, wait, now + wait)
        self.look_again(it.key, now + wait)

    def _abandon(self, it: _Running, now: int) -> None:
        """What it was about to act on is no longer so: it is looked at anew."""
        it.steps.close()
        del self._running[it.name]
        if it.making:
            self.in_doubt(it.making)
        self.look_again(it.key, now)

    # --- the provisioner --------------------------------------------------------------------------------

    def _call(self, it: _Running, request: PluginCall, now: int) -> bool:
        """False: it is not finished yet."""
        it.called_at = now if it.called_at is None else it.called_at
        if isinstance(request, Provision):
            it.making = request.volume_name
        try:
            answer = ask(self.provisioners[request.plugin], request, now)
        except PluginError as error:
            it.fail(error)
        except Exception as error:
            it.fail(no_answer(request, f"{type(error).__name__}: {error}"))
        else:
            give_up_at = it.called_at + PATIENCE
            if not isinstance(answer, Unfinished):
                it.answer(answer)
            elif now < give_up_at:
                it.due = min(max(answer.again_at, now + MILLISECOND), give_up_at)
                return False
            else:
                it.fail(no_answer(request, f"no answer within {PATIENCE // SECOND} s, it may still be running"))
        it.called_at, it.checked = None, False
        it.seen.clear()
        return True

    # --- the store --------------------------------------------------------------------------------------

    def _storing(self, request: StoreCall, now: int, lease: LeaseProof) -> Command:
        return store_command(request, uid=self.new_uid, actor=self.owner, lease=lease, now=now)

    def _execute(self, asked: Sequence[tuple[_Running, Command]], now: int) -> bool:
        """All in one transaction; False: we do not lead any more."""
        told = [notice for notice in self._notices if self.said.is_news(notice, now)]
        self._notices.clear()
        commands = [*(self._telling(notice, now) for notice in told), *(command for _, command in asked)]
        try:
            outcomes = execute(self.database, commands, now=now)
        except Exception:
            # Nobody knows what was committed; whoever asked begins anew and finds out.
            self.said.take_back(told)
            for it, _ in asked:
                self._abandon(it, now)
            raise
        for (it, _), outcome in zip(asked, outcomes[len(told) :], strict=True):
            if isinstance(outcome, DeposedError):
                self.clear()
                return False
            self._take(it, outcome, now)
        return True

    def _take(self, it: _Running, outcome: Outcome, now: int) -> None:
        """Hand the outcome of a command to the operation that asked for it."""
        request = it.request
        if not isinstance(outcome, Done):
            if isinstance(request, PluginCall):
                self._abandon(it, now)
            else:
                it.fail(outcome if isinstance(outcome, RejectedError) else SyncError(str(outcome)))
            return
        if isinstance(request, PluginCall):
            it.checked = True
            return
        assert isinstance(request, StoreCall)
        stored = stored_by(outcome)
        if isinstance(request, LiveGet):
            it.seen[stream_of(request.kind, request.key)] = version_of(stored)
        it.answer(reply_to(request, stored))

    def _telling(self, notice: Notice, now: int) -> Command:
        return door.notice(
            notice.kind, notice.key, door.controller(self.owner, now),
            uid=notice.uid, type_=notice.type, reason=notice.reason,
            message=notice.message, component=COMPONENT,
        )  # fmt: skip
