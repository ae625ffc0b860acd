"""The Celery app. Its settings are part of the design: SQL holds the work, so Redis may forget everything.

Every worker brings its own beat. Several of them send more sweeps than are needed, which is harmless; a stack in
which nobody thought of `-B` would never time out a binding.
"""

import logging
import os
import sys
from typing import Any

from celery import Celery, platforms, signals
from celery.worker import state as worker_state
from kombu import Queue

from volsched.binding.executor import QUEUES
from volsched.binding.wakeup import SWEEP, WAIT_FOR_BOUND, WAKE_UPS, own_canary, wake_up_name
from volsched.runtime.clock import skew_from
from volsched.runtime.fault_points import ArmingError, arm_from
from volsched.runtime.settings import Settings
from workers import process
from workers.broker import SteadyConnection

SWEEP_EVERY_SECONDS = 1.0
SWEEP_EXPIRES_SECONDS = 2.0
SOFT_SHUTDOWN_SECONDS = 20.0
"""A batch takes far less, and the usual grace of thirty seconds is not used up."""
TASK_SECONDS = 300
"""A worker process that hangs for so long is replaced; its leases have run out long before."""
BEAT_LOOK_SECONDS = 1.0

_logger = logging.getLogger(__name__)
OWN_CANARY = own_canary(Settings().instance)
_QUEUES = (*WAKE_UPS, OWN_CANARY)

app = Celery("volsched", broker=Settings().redis_url, include=["workers.tasks"])
app.amqp.Connection = SteadyConnection
app.conf.update(
    accept_content=["json"],
    task_serializer="json",
    result_serializer="json",
    task_ignore_result=True,
    # The row in the database is the guarantee. A message that were kept until its work is done would only come
    # back, by then without meaning.
    task_acks_late=False,
    task_time_limit=TASK_SECONDS,
    # Each with a key of its own: without, Celery gives all of them the same, and every sweep would be put into
    # every queue, also into those of workers that are long gone.
    task_queues=[Queue(wake_up_name(what), routing_key=wake_up_name(what)) for what in _QUEUES],
    task_routes={wake_up_name(what): {"queue": wake_up_name(what)} for what in _QUEUES},
    task_default_queue=wake_up_name(SWEEP),
    worker_prefetch_multiplier=1,
    worker_soft_shutdown_timeout=SOFT_SHUTDOWN_SECONDS,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    # Nobody needs to tell workers what to do, and everyone who reaches Redis could.
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"socket_timeout": 10, "socket_connect_timeout": 5, "socket_keepalive": True},
    beat_scheduler="workers.beat:PatientBeat",
    beat_max_loop_interval=SWEEP_EVERY_SECONDS,
    beat_schedule={
        what: {
            "task": wake_up_name(what),
            "schedule": SWEEP_EVERY_SECONDS,
            "options": {"expires": SWEEP_EXPIRES_SECONDS},
        }
        for what in (SWEEP, WAIT_FOR_BOUND)
    },
)


def _on_worker_init(sender: Any, **_: Any) -> None:
    """Refuse what cannot work, before any process is forked: later on it would only be logged."""
    if Settings().redis_url is None:
        raise SystemExit("VOLSCHED_REDIS_URL is not set: without Redis, workers run inside volsched itself")
    try:
        arm_from(os.environ)
        # Before the fork: its processes inherit it.
        skew_from(os.environ)
    except ArmingError as error:
        raise SystemExit(str(error)) from None
    # Workers need not know of each other, and with these on they have been seen to stop consuming for good after
    # Redis was restarted (celery issues 8030 and 8091).
    sender.options.update(without_mingle=True, without_gossip=True, without_heartbeat=True, beat=True)


def _on_process_init(**_: Any) -> None:
    arm_from(os.environ)
    process.hands()


def _on_process_shutdown(**_: Any) -> None:
    process.close()


def _on_beat_init(**_: Any) -> None:
    # Celery does this for its pool only: the beat of a killed worker would go on for ever.
    platforms.set_pdeathsig("SIGKILL")  # type: ignore[attr-defined]  # the stubs have forgotten it


def _on_ready(sender: Any, **_: Any) -> None:
    """Whenever it begins to take messages: a connection that was lost has taken its timers along."""
    print("at work until SIGTERM", file=sys.stderr, flush=True)
    _wake_for_all()
    sender.timer.call_repeatedly(BEAT_LOOK_SECONDS, _end_without_beat, (sender.controller.beat,))


def _wake_for_all() -> None:
    """What the dead have left is looked for at once: the beat, a process that is still starting, rings later."""
    try:
        for what in (*QUEUES, WAIT_FOR_BOUND, SWEEP):
            app.send_task(
                wake_up_name(what),
                queue=wake_up_name(what),
                expires=SWEEP_EXPIRES_SECONDS,
                ignore_result=True,
                retry=False,
            )
    except app.connection_for_write().recoverable_connection_errors as error:
        _logger.warning("nobody was woken for what others have left, the beat will do it: %s", error)


def _end_without_beat(beat: Any) -> None:
    """Celery replaces pool processes that die, and not this one: without it nothing would ever be swept again.

    Ended in good order; whoever started the worker starts it again.
    """
    if not beat.is_alive() and worker_state.should_stop is None:
        _logger.error("the beat of this worker has died; the worker ends, to be started again with a new one")
        worker_state.should_stop = os.EX_SOFTWARE  # type: ignore[assignment]  # what it is at first is all they know


# Not weakly: these are referred to by nobody else.
signals.worker_init.connect(_on_worker_init, weak=False)
signals.worker_process_init.connect(_on_process_init, weak=False)
signals.worker_process_shutdown.connect(_on_process_shutdown, weak=False)
signals.beat_embedded_init.connect(_on_beat_init, weak=False)
signals.worker_ready.connect(_on_ready, weak=False)
