"""Redis only carries wake-ups: flushed, restarted, doubled, full of garbage, it loses no work and doubles none."""

import json
import socket
from collections.abc import Callable

import pytest

from tests.stack.processes import Redis, worker
from tests.stack.proxy import Line, to_port
from tests.stack.work import done, plan_legs, queued
from tests.support.patience import wait_until
from tests.support.written_legs import every_leg_was_written_once
from volsched.binding.executor import QUEUES
from volsched.binding.wakeup import CANARY, SILENCE, WAKE_UPS, RedisBell, wake_up_name
from volsched.log.database import Database
from volsched.log.leases import current
from volsched.runtime.clock import system_clock

pytestmark = [pytest.mark.usefixtures("url"), pytest.mark.parametrize("url", ["postgres"], indirect=True)]


def legs_done(database: Database, legs: int) -> Callable[[], bool]:
    return lambda: done(database) >= legs


def test_redis_flushed_before_workers_start_and_all_of_2000_legs_are_done_once(
    database: Database, url: str, broker: Redis
) -> None:
    bell = RedisBell(broker.url, database, system_clock)
    plan_legs(database, pods=400, each=5)
    bell()
    assert broker.client.llen(wake_up_name("prebind")) == 1
    broker.client.flushall()
    with worker(url, broker) as one:
        wait_until(legs_done(database, 2_000), progress=lambda: (done(database), queued(database)))
        every_leg_was_written_once(database, 2_000)
        assert one.end() == 0
    bell.close()


def test_redis_stopped_and_restarted_in_the_middle(database: Database, url: str, broker: Redis) -> None:
    """Empty when it comes back, twice: a worker that reconnects once may still not do so again."""
    with worker(url, broker) as one:
        wait_until(one.ready)
        for before in (0, 600):
            plan_legs(database, pods=60, each=5, start=before)
            wait_until(legs_done(database, before + 1))
            broker.stop()
            plan_legs(database, pods=60, each=5, start=before + 60)
            broker.start()
            wait_until(legs_done(database, before + 600), progress=lambda: (done(database), queued(database)))
        every_leg_was_written_once(database, 1_200)


def test_doubled_messages_do_nothing_twice(database: Database, url: str, broker: Redis) -> None:
    """A hundred copies of a wake-up for every queue, with two workers to take them."""
    bell = RedisBell(broker.url, database, system_clock)
    copies = {}
    for queue in QUEUES:
        bell.ring(queue)
        message = json.loads(broker.client.lpop(wake_up_name(queue)))
        message["headers"]["expires"] = None
        copies[wake_up_name(queue)] = [json.dumps(message)] * 100
    with worker(url, broker) as one, worker(url, broker, name="two") as two:

        def ended() -> int:
            return one.ended("prebind") + two.ended("prebind")

        wait_until(lambda: one.ready() and two.ready())
        plan_legs(database, pods=100, each=5)
        for name, messages in copies.items():
            broker.client.lpush(name, *messages)
        wait_until(lambda: ended() >= 100, progress=ended)
        wait_until(legs_done(database, 500), progress=lambda: (done(database), queued(database)))
        every_leg_was_written_once(database, 500)
    bell.close()


def test_a_burst_of_rings_is_one_message_while_nobody_takes_it(database: Database, broker: Redis) -> None:
    plan_legs(database, pods=1, each=1)
    bell = RedisBell(broker.url, database, system_clock)
    for _ in range(100):
        bell()
    assert broker.client.llen(wake_up_name("prebind")) == 1
    assert broker.client.llen(wake_up_name("bind_pod")) == 0
    bell.close()


def test_ringing_without_redis_neither_fails_nor_takes_long(
    database: Database, broker: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """After it did not answer it is left alone for a second, however many commits there are, and told once."""
    plan_legs(database, pods=1, each=1)
    now, dialled = system_clock(), 0

    def dial() -> socket.socket:
        nonlocal dialled
        dialled += 1
        return to_port(broker.port)()

    line = Line(dial)
    bell = RedisBell(f"redis://127.0.0.1:{line.port}/0", database, lambda: now)
    broker.stop()
    bell()
    tries = dialled
    assert tries > 0
    for _ in range(100):
        bell()
    assert dialled == tries
    now += SILENCE
    bell()
    assert dialled > tries
    assert len(caplog.records) == 1
    broker.start()

    def rings() -> bool:
        nonlocal now
        now += SILENCE
        bell()
        return bool(broker.client.llen(wake_up_name("prebind")) == 1)

    wait_until(rings)
    bell.close()
    line.close()


def test_garbage_on_the_queues_does_not_kill_a_worker(database: Database, url: str, broker: Redis) -> None:
    unknown_task = {"task": "volsched.no_such_thing", "id": "1", "lang": "py", "root_id": "1", "parent_id": None}
    garbage = [
        _message({"task": wake_up_name("prebind"), "id": "2"}, body="bm90IGpzb24="),
        _message(unknown_task),
        _message({}),
        _message({"task": wake_up_name("prebind"), "id": "3"}, content_type="application/x-python-serialize"),
        _message({**unknown_task, "task": wake_up_name("prebind")}, body="W1sxLCAyXSwgeyJhIjogMX0sIHt9XQ=="),
    ]
    for what in WAKE_UPS:
        broker.client.rpush(wake_up_name(what), *garbage)
    with worker(url, broker) as one:
        wait_until(one.ready)
        wait_until(lambda: not any(broker.client.llen(wake_up_name(what)) for what in WAKE_UPS))
        plan_legs(database, pods=10, each=2)
        wait_until(legs_done(database, 20), progress=lambda: (done(database), queued(database)))
        every_leg_was_written_once(database, 20)
        assert one.process.poll() is None


def test_a_canary_shows_that_wake_ups_are_carried_out(database: Database, url: str, broker: Redis) -> None:
    bell = RedisBell(broker.url, database, system_clock)
    with worker(url, broker) as one:
        wait_until(one.ready)
        asked = system_clock()

        def answered() -> bool:
            # Again and again: one that waits for too long expires.
            bell.ring(CANARY)
            found = current(database, name=CANARY)
            return found is not None and found.until >= asked

        wait_until(answered)
    bell.close()


def _message(headers: dict[str, object], *, body: str = "W1tdLCB7fSwge31d", content_type: str = "") -> str:
    """As kombu would put it into the list; the body is base64 of `[[], {}, {}]` unless told."""
    info = {"exchange": "", "routing_key": wake_up_name("prebind")}
    return json.dumps(
        {
            "body": body,
            "content-encoding": "utf-8",
            "content-type": content_type or "application/json",
            "headers": headers,
            "properties": {
                "correlation_id": "1", "delivery_mode": 2, "delivery_info": info, "priority": 0,
                "body_encoding": "base64", "delivery_tag": "1",
            },
        }
    )  # fmt: skip
