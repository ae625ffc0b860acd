"""However long nobody takes a message, Redis holds one ring of each kind and no more."""

from pathlib import Path

import pytest
from celery import Celery

from tests.stack.processes import Redis
from volsched.binding.wakeup import SWEEP, WAIT_FOR_BOUND, WAKE_UPS, RedisBell, wake_up_name
from volsched.log.database import Database
from volsched.runtime.clock import system_clock
from workers.app import PatientBeat

RINGS = 50


def test_a_beat_that_nobody_hears_does_not_fill_redis(broker: Redis) -> None:
    app = Celery("test", broker=broker.url, set_as_current=False)
    names = [wake_up_name(what) for what in (SWEEP, WAIT_FOR_BOUND)]
    app.conf.beat_schedule = {it: {"task": it, "schedule": 0.0, "options": {"queue": it}} for it in names}
    beat = PatientBeat(app=app)
    for _ in range(RINGS):
        for entry in beat.schedule.values():
            beat.apply_async(entry, producer=beat.producer, advance=False)
    assert [broker.client.llen(it) for it in names] == [1, 1]
    # Taken, and rung again.
    broker.client.delete(names[0])
    beat.apply_async(beat.schedule[names[0]], producer=beat.producer, advance=False)
    assert broker.client.llen(names[0]) == 1
    app.close()


def test_rings_of_other_processes_do_not_pile_up_either(broker: Redis, sqlite: Database) -> None:
    bell = RedisBell(broker.url, sqlite, system_clock)
    for _ in range(RINGS):
        for what in WAKE_UPS:
            bell.ring(what)
    assert {broker.client.llen(wake_up_name(what)) for what in WAKE_UPS} == {1}
    bell.close()


@pytest.mark.parametrize("name", ["workers/app.py"])
def test_workers_use_it(name: str) -> None:
    assert 'beat_scheduler="workers.app:PatientBeat"' in (Path(__file__).parents[2] / name).read_text()
