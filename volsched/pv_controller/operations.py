"""Long operations of the PV controller, run step by step; their calls, and the throttle of repeated notices."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from volsched.log.commands import Command, DeposedError, Done, LeaseProof, Outcome, RejectedError, version_of
from volsched.log.database import Database
from volsched.log.events.fold import Decision, ObjectState, States, versioned
from volsched.log.events.streams import stream_of
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.objects.object_write import Author, ObjectWrite
from volsched.provisioning.protocol import Provisioner, Unfinished
from volsched.pv_controller.rules import (
    CLAIM,
    VOLUME,
    Create,
    Delete,
    DeleteAsset,
    Enqueue,
    LiveGet,
    Notice,
    Pause,
    PluginError,
    Provision,
    Recycle,
    Request,
    StartOperation,
    Steps,
    SyncError,
    UnfinishedError,
    Update,
    parsed_claim,
    parsed_volume,
)
from volsched.pv_controller.rules.reasons import PROVISIONING_FAILED
from volsched.runtime.clock import MILLISECOND, SECOND

# Requests of operations, one call at a time: a command to the store, or a function call to a provisioner.
#
# A provisioner may raise or return anything; this code turns it into an answer or a `PluginError`.

PluginCall = Provision | DeleteAsset | Recycle
StoreCall = Update | Create | Delete | LiveGet
_HELD = {CLAIM: parsed_claim, VOLUME: parsed_volume}


def store_command(
    request: StoreCall, *, uid: Callable[[], str], actor: str, lease: LeaseProof, now: int
) -> Command:
    """The request as a command under the log's lock. The basis of its answer is the object's state afterwards."""
    if isinstance(request, LiveGet):
        stream = stream_of(request.kind, request.key)
        look = Command(actor=actor, streams=(stream,), decide=lambda states: Decision(basis=states.get(stream)))
        return look.under(lease)
    write = _write(request, door.controller(actor, now), uid)

    def decide(states: States) -> Decision:
        decision = write.command.decide(states)
        return replace(decision, basis=write.state)

    return replace(write.command, decide=decide).under(lease)


def stored_by(done: Done) -> ObjectState | None:
    """The object after the request, at its version in the log; None: there is none."""
    stored = done.basis
    if not isinstance(stored, ObjectState) or stored.manifest is None:
        return None
    return stored._replace(rv=done.position) if done.events else stored


def reply_to(request: StoreCall, stored: ObjectState | None) -> Any:
    """The answer that the tables expect."""
    if isinstance(request, Update):
        # Removed with its last finalizer: no later write can follow.
        return _HELD[request.kind](request.manifest if stored is None else versioned(stored))
    return None if stored is None else versioned(stored)


def _write(request: Update | Create | Delete, author: Author, uid: Callable[[], str]) -> ObjectWrite:
    match request:
        case Update():
            return door.update(request.kind, request.manifest, author, status=request.status)
        case Create():
            return door.create(request.kind, request.manifest, author, uid=uid())
        case Delete():
            return door.delete(request.kind, request.key, author, uid=request.uid)


def ask(provisioner: Provisioner, request: PluginCall, now: int) -> Any:
    if isinstance(request, DeleteAsset):
        return provisioner.delete(request.volume, now)
    if isinstance(request, Recycle):
        return provisioner.recycle(request.volume, now)
    answer = provisioner.provision(request, now)
    return answer if isinstance(answer, Unfinished) else _volume(answer, request)


def _volume(answer: Any, request: Provision) -> Any:
    """Validate a provisioner's answer, which may be anything."""
    try:
        parsed_volume({**answer, "metadata": {**(answer.get("metadata") or {}), "name": request.volume_name}})
        return {**answer, "spec": {**answer["spec"]}}
    except (ValidationError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise PluginError(f"{request.plugin} answered what is not a volume: {error}") from error


def no_answer(request: PluginCall, why: str) -> PluginError:
    """The error of an unknown outcome: storage may exist, so the selected node stays. Deletion is idempotent."""
    return UnfinishedError(why) if isinstance(request, Provision) else PluginError(why)


# Throttle of notices: the tables report a persistent condition at every sync.

TELL_AGAIN = 300 * SECOND


@dataclass(slots=True)
class NoticeThrottle:
    """Limits a repeated notice: it is written once, and again after a while."""

    _at: dict[str, dict[tuple[str, str], int]] = field(default_factory=dict)
    """The notices of each object, by uid, with the time when they were last written."""

    def is_news(self, notice: Notice, now: int) -> bool:
        """Whether to write the notice; if so, it is recorded as written."""
        written_at, what = self._at.setdefault(notice.uid, {}), _what(notice)
        last = written_at.get(what)
        if last is None and notice.patience_seconds:
            written_at[what] = now - TELL_AGAIN + notice.patience_seconds * SECOND
            return False
        if last is not None and now - last < TELL_AGAIN:
            return False
        if notice.reason == PROVISIONING_FAILED:
            # Readers take the last notice as the reason of a failed binding, so an earlier one may be repeated.
            for other in [it for it in written_at if it[0] == PROVISIONING_FAILED]:
                del written_at[other]
        written_at[what] = now
        return True

    def take_back(self, notices: Iterable[Notice]) -> None:
        """Forget notices that were not written."""
        for notice in notices:
            self._at.get(notice.uid, {}).pop(_what(notice), None)

    def forget(self, uid: str) -> None:
        """Forget the notices of a deleted object."""
        self._at.pop(uid, None)


def _what(notice: Notice) -> tuple[str, str]:
    return notice.reason, notice.message


# An operation is a generator like a sync, but it runs call by call: each of its requests to the store is a
# separate command, conditional on the versions that the operation has read and on the controller's lease.
# Concurrent operations share a transaction. An operation stops while it pauses or a provisioner works, and
# continues at a later step.
#
# Operations are not stored. After a crash the resync starts them again, and they find earlier work by the
# volume's name.

FIRST_BACKOFF = 500 * MILLISECOND
LONGEST_BACKOFF = 122 * SECOND
PATIENCE = 60 * SECOND
"""Timeout of a provisioner's answer: then the claim reports it, and the call is retried."""
COMPONENT = "persistentvolume-controller"
Key = tuple[str, str]


@dataclass(slots=True)
class _Running:
    name: str
    key: Key
    """The object whose sync started it."""
    steps: Steps[None]
    request: Request | None = None
    """The request that is not answered yet."""
    reply: Any = None
    error: Exception | None = None
    due: int = 0
    called_at: int | None = None
    """When the provisioner's unanswered call was first made."""
    versions_read: dict[str, int] = field(default_factory=dict)
    """Stream → the version read live since the last call of a provisioner."""
    checked: bool = False
    """Preconditions were re-checked; irreversible calls are allowed from here."""
    creating: str = ""
    """The volume that a provisioner is creating."""
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
    throttle: NoticeThrottle
    sync_later: Callable[[Key, int], None]
    """Schedules a sync of the object at a time."""
    in_doubt: Callable[[str], None]
    """Reports that storage may be left behind for a volume of that name."""
    _running: dict[str, _Running] = field(default_factory=dict)
    _backoffs: dict[str, _Backoff] = field(default_factory=dict)
    _notices: list[Notice] = field(default_factory=list)

    def start(self, start: StartOperation, key: Key, now: int) -> None:
        """Run an operation from the next step on, unless one of its name runs or backs off after an error."""
        running, backoff = self._running.get(start.name), self._backoffs.get(start.name)
        if running is not None:
            running.wanted_again = True
        elif backoff is not None and now < backoff.until:
            self.sync_later(key, backoff.until)
        else:
            self._running[start.name] = _Running(start.name, key, start.operation)

    def step(self, now: int, lease: LeaseProof) -> int:
        """Run every operation as far as possible now; returns how many requests were answered."""
        ready = [running for running in self._running.values() if running.due <= now]
        progress = 0
        while ready:
            requests: list[tuple[_Running, Command]] = []
            for running in ready:
                progress += self._go_on(running, requests, now, lease)
            if not self._execute(requests, now):
                break
            ready = [running for running, _ in requests if running.name in self._running]
        return progress

    def next_due(self) -> int | None:
        return min((running.due for running in self._running.values()), default=None)

    def creating(self) -> frozenset[str]:
        """Volumes for which storage may exist before the object does."""
        return frozenset(running.creating for running in self._running.values() if running.creating)

    def forget(self, key: Key) -> None:
        """Forget the back-offs of a deleted object; its running operations run to their end."""
        for name in [name for name, backoff in self._backoffs.items() if backoff.key == key]:
            del self._backoffs[name]

    def clear(self) -> None:
        """Drop all operations: another process leads now and restarts unfinished ones."""
        for running in self._running.values():
            running.steps.close()
        self._running.clear()
        self._backoffs.clear()

    # --- one operation ----------------------------------------------------------------------------------

    def _go_on(
        self, running: _Running, requests: list[tuple[_Running, Command]], now: int, lease: LeaseProof
    ) -> int:
        """Run the operation until it needs the store, waits, or ends; returns the number of moves."""
        moves = 0
        while True:
            if running.request is None:
                moves += 1
                if not self._resume(running, now):
                    return moves
            request = running.request
            if isinstance(request, Notice):
                self._notices.append(request)
                running.answer(None)
            elif isinstance(request, Enqueue):
                self.sync_later((request.kind, request.key), now)
                running.answer(None)
            elif isinstance(request, Pause):
                running.answer(None)
                running.due = now + request.seconds * SECOND
                return moves
            elif isinstance(request, PluginCall):
                if running.versions_read and not running.checked and not isinstance(request, Provision):
                    requests.append(
                        (running, door.unchanged(dict(running.versions_read), actor=self.owner).under(lease))
                    )
                    return moves
                if not self._call(running, request, now):
                    return moves
            elif isinstance(request, StoreCall):
                requests.append((running, self._store_command(request, now, lease)))
                return moves
            else:
                running.fail(SyncError(f"{type(request).__name__} is not for operations"))

    def _resume(self, running: _Running, now: int) -> bool:
        """Pass the answer to the operation; False: it has ended."""
        error, running.error = running.error, None
        try:
            running.request = running.steps.send(running.reply) if error is None else running.steps.throw(error)
        except StopIteration:
            self._end(running, now)
            return False
        except (SyncError, PluginError, RejectedError):
            self._back_off(running, now)
            return False
        return True

    def _end(self, running: _Running, now: int) -> None:
        del self._running[running.name]
        self._backoffs.pop(running.name, None)
        if running.wanted_again:
            # A sync requested the operation while it ran.
            self.sync_later(running.key, now)

    def _back_off(self, running: _Running, now: int) -> None:
        del self._running[running.name]
        if running.creating:
            self.in_doubt(running.creating)
        before = self._backoffs.get(running.name)
        wait = FIRST_BACKOFF if before is None else min(before.wait * 2, LONGEST_BACKOFF)
        self._backoffs[running.name] = _Backoff(running.key, wait, now + wait)
        self.sync_later(running.key, now + wait)

    def _abandon(self, running: _Running, now: int) -> None:
        """End an operation whose precondition no longer holds, and sync the object again."""
        running.steps.close()
        del self._running[running.name]
        if running.creating:
            self.in_doubt(running.creating)
        self.sync_later(running.key, now)

    # --- the provisioner --------------------------------------------------------------------------------

    def _call(self, running: _Running, request: PluginCall, now: int) -> bool:
        """Call the provisioner; False: it has not finished yet."""
        running.called_at = now if running.called_at is None else running.called_at
        if isinstance(request, Provision):
            running.creating = request.volume_name
        try:
            answer = ask(self.provisioners[request.plugin], request, now)
        except PluginError as error:
            running.fail(error)
        except Exception as error:
            running.fail(no_answer(request, f"{type(error).__name__}: {error}"))
        else:
            give_up_at = running.called_at + PATIENCE
            if not isinstance(answer, Unfinished):
                running.answer(answer)
            elif now < give_up_at:
                running.due = min(max(answer.again_at, now + MILLISECOND), give_up_at)
                return False
            else:
                running.fail(
                    no_answer(request, f"no answer within {PATIENCE // SECOND} s, it may still be running")
                )
        running.called_at, running.checked = None, False
        running.versions_read.clear()
        return True

    # --- the store --------------------------------------------------------------------------------------

    def _store_command(self, request: StoreCall, now: int, lease: LeaseProof) -> Command:
        return store_command(request, uid=self.new_uid, actor=self.owner, lease=lease, now=now)

    def _execute(self, requests: Sequence[tuple[_Running, Command]], now: int) -> bool:
        """Execute all requests in one transaction; False: we no longer lead."""
        news = [notice for notice in self._notices if self.throttle.is_news(notice, now)]
        self._notices.clear()
        commands = [*(self._notice_command(notice, now) for notice in news), *(command for _, command in requests)]
        try:
            outcomes = execute(self.database, commands, now=now)
        except Exception:
            # The outcome of the commit is unknown; the operations start over and find out.
            self.throttle.take_back(news)
            for running, _ in requests:
                self._abandon(running, now)
            raise
        for (running, _), outcome in zip(requests, outcomes[len(news) :], strict=True):
            if isinstance(outcome, DeposedError):
                self.clear()
                return False
            self._take(running, outcome, now)
        return True

    def _take(self, running: _Running, outcome: Outcome, now: int) -> None:
        """Pass the outcome of a command to its operation."""
        request = running.request
        if not isinstance(outcome, Done):
            if isinstance(request, PluginCall):
                self._abandon(running, now)
            else:
                running.fail(outcome if isinstance(outcome, RejectedError) else SyncError(str(outcome)))
            return
        if isinstance(request, PluginCall):
            running.checked = True
            return
        assert isinstance(request, StoreCall)
        stored = stored_by(outcome)
        if isinstance(request, LiveGet):
            running.versions_read[stream_of(request.kind, request.key)] = version_of(stored)
        running.answer(reply_to(request, stored))

    def _notice_command(self, notice: Notice, now: int) -> Command:
        return door.notice(
            notice.kind, notice.key, door.controller(self.owner, now),
            uid=notice.uid, type_=notice.type, reason=notice.reason,
            message=notice.message, component=COMPONENT,
        )  # fmt: skip
