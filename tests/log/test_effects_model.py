"""Any history of the queue, against a model that looks through a list: lanes, fences, attempts and time.

On SQLite only: what is tested is the rule and not the locks, which have tests of their own.
"""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.extent import extended, extent
from tests.support.fresh_stores import fresh_store
from tests.support.parked_effects import park
from tests.support.store_samples import NOW, create_volume
from volsched.log.commands import Command, DeposedError, Done, EffectDone, Precondition
from volsched.log.effects import Retry, claim, extend, list_effects, next_due, retry_later, unpark
from volsched.log.events.fold import Decision, NewEffect
from volsched.log.transaction import execute

pytestmark = extended

LEASE = 10
MAX_ATTEMPTS = 2
LANES = st.sampled_from("abc")
QUEUES = st.sampled_from(["prebind", "release"])
TOKENS = st.integers(0, 10**6)


@dataclass(slots=True)
class Modelled:
    key: str
    lane: str
    queue: str
    due: int
    state: str = "ready"
    until: int = 0
    fence: int = 0
    attempts: int = 0


class QueueOfEffects(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = fresh_store()
        self.database = self.store.__enter__()
        self.now = NOW
        # Else a lease of ten microseconds is found not to be renewed, on a machine that takes its time.
        self.database.observer.clock = lambda: self.now
        self.added = 0
        self.queue: list[Modelled] = []
        """In the order of adding; what is done is gone."""
        self.tokens: list[tuple[str, int]] = []
        """Every (key, fence) ever given out, most of them stale."""

    def teardown(self) -> None:
        self.store.__exit__(None, None, None)

    def first_of_lane(self, lane: str) -> Modelled:
        return next(entry for entry in self.queue if entry.lane == lane)

    def heads(self, queue: str) -> list[Modelled]:
        return [entry for entry in self.queue if entry.queue == queue and self.first_of_lane(entry.lane) is entry]

    def held(self, token: int) -> tuple[str, int, Modelled | None]:
        key, fence = self.tokens[token % len(self.tokens)]
        for entry in self.queue:
            if (entry.key, entry.fence, entry.state) == (key, fence, "leased"):
                return key, fence, entry
        return key, fence, None

    @rule(lanes=st.lists(st.tuples(LANES, QUEUES, st.sampled_from([0, 0, 5])), max_size=4), event=st.booleans())
    def add(self, lanes: list[tuple[str, str, int]], event: bool) -> None:
        effects = []
        for lane, queue, delay in lanes:
            # Keys that sort against the order of adding, so that the order cannot come from them.
            key = f"{9_999 - self.added}"
            self.added += 1
            due = self.now + delay if delay else 0
            effects.append(NewEffect(key=key, lane=lane, queue=queue, kind="k", due=due))
            self.queue.append(Modelled(key, lane, queue, due))
        decision = Decision(effects=tuple(effects))
        command = Command(actor="test", streams=(), decide=lambda _: decision)
        before = [create_volume(f"v{self.added}")] if event else []
        outcomes = execute(self.database, [*before, command], now=self.now)
        assert all(isinstance(outcome, Done) for outcome in outcomes)

    @rule(step=st.sampled_from([1, 5, LEASE, LEASE + 1]))
    def let_time_pass(self, step: int) -> None:
        self.now += step

    @rule(queue=QUEUES, limit=st.sampled_from([1, 2, 100]))
    def claim(self, queue: str, limit: int) -> None:
        heads = self.heads(queue)
        lost = [entry for entry in heads if entry.state == "leased" and entry.until < self.now]
        again = [entry for entry in heads if entry.state == "ready" and 0 < entry.due <= self.now]
        new = [entry for entry in heads if entry.state == "ready" and entry.due == 0]
        claimed = claim(
            self.database,
            queue=queue,
            owner="w",
            limit=limit,
            now=self.now,
            lease_for=LEASE,
            max_attempts=MAX_ATTEMPTS,
        )
        taken = {entry.key: entry for entry in claimed}
        parked = {shown.key for shown in list_effects(self.database) if shown.state == "parked"}
        given_up = [entry for entry in lost if entry.key in parked]
        found = [entry for entry in lost if entry.key in taken]
        assert len(found) + len(given_up) == min(limit, len(lost))
        assert all(entry.attempts < MAX_ATTEMPTS for entry in found)
        assert all(entry.attempts >= MAX_ATTEMPTS for entry in given_up)
        again = sorted(again, key=lambda entry: entry.due)
        dues = [entry.due for entry in again if entry.key in taken]
        assert sorted(dues) == [entry.due for entry in again][: limit - len(found)]
        room = limit - len(found) - len(dues)
        assert len([entry for entry in new if entry.key in taken]) == min(room, len(new))
        for entry in given_up:
            entry.state = "parked"
        for entry in (*lost, *again, *new):
            if entry.key in taken:
                entry.state, entry.until = "leased", self.now + LEASE
                entry.fence += 1
                entry.attempts += 1
                assert (taken[entry.key].fence, taken[entry.key].attempts) == (entry.fence, entry.attempts)
                self.tokens.append((entry.key, entry.fence))

    @precondition(lambda self: self.tokens)
    @rule(token=TOKENS)
    def record(self, token: int) -> None:
        key, fence, entry = self.held(token)
        done = EffectDone(key=key, fence=fence, outcome="done")
        command = Command(
            actor="w", streams=(), decide=lambda _: Decision(), precondition=Precondition(effect=done)
        )
        (outcome,) = execute(self.database, [command], now=self.now)
        assert isinstance(outcome, DeposedError if entry is None else Done)
        if entry is not None:
            self.queue.remove(entry)

    @precondition(lambda self: self.tokens)
    @rule(token=TOKENS, delay=st.sampled_from([0, 5]))
    def retry(self, token: int, delay: int) -> None:
        key, fence, entry = self.held(token)
        outcome = retry_later(
            self.database, key=key, fence=fence, due=self.now + delay, error="no", max_attempts=MAX_ATTEMPTS
        )
        if entry is None:
            assert outcome is Retry.DEPOSED
        elif entry.attempts >= MAX_ATTEMPTS:
            assert outcome is Retry.PARKED
            entry.state = "parked"
        else:
            assert outcome is Retry.RETRYING
            entry.state, entry.due = "ready", self.now + delay

    @precondition(lambda self: self.tokens)
    @rule(token=TOKENS)
    def park(self, token: int) -> None:
        key, fence, entry = self.held(token)
        assert park(self.database, key=key, fence=fence, error="no") == (entry is not None)
        if entry is not None:
            entry.state = "parked"

    @precondition(lambda self: self.tokens)
    @rule(token=TOKENS)
    def extend(self, token: int) -> None:
        key, fence, entry = self.held(token)
        kept = extend(self.database, {key: fence}, until=self.now + LEASE)
        assert kept == (set() if entry is None else {key})
        if entry is not None:
            entry.until = self.now + LEASE

    @precondition(lambda self: self.queue)
    @rule(index=TOKENS)
    def unpark(self, index: int) -> None:
        entry = self.queue[index % len(self.queue)]
        assert unpark(self.database, key=entry.key, now=self.now) == (entry.state == "parked")
        if entry.state == "parked":
            entry.state, entry.due, entry.attempts = "ready", self.now, 0

    @invariant()
    def the_store_is_what_the_model_says(self) -> None:
        shown = {
            entry.key: (entry.state, entry.due, entry.attempts, entry.lease_until)
            for entry in list_effects(self.database, limit=10_000)
        }
        assert shown == {
            entry.key: (entry.state, entry.due, entry.attempts, entry.until if entry.state == "leased" else None)
            for entry in self.queue
        }

    @invariant()
    def only_the_first_of_a_lane_is_leased(self) -> None:
        leased = [entry for entry in self.queue if entry.state == "leased"]
        assert all(self.first_of_lane(entry.lane) is entry for entry in leased)

    @invariant()
    def next_due_is_when_a_head_can_be_claimed(self) -> None:
        for queue in ("prebind", "release"):
            times = [
                entry.until + 1 if entry.state == "leased" else entry.due
                for entry in self.heads(queue)
                if entry.state != "parked"
            ]
            assert next_due(self.database, queues=[queue]) == min(times, default=None)


TestQueueOfEffects = QueueOfEffects.TestCase
TestQueueOfEffects.settings = settings(max_examples=extent(10, 30), stateful_step_count=30, deadline=None)
