"""The Celery app with its Redis connection, its beat and the state of a process. The work is in the database."""

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

from celery import Celery, platforms, signals
from celery.beat import Scheduler
from celery.worker import state as worker_state
from kombu import Connection, Queue
from kombu.transport import redis, virtual

from volsched.binding.executor import QUEUES, Executor
from volsched.binding.recovery import Sweep, recover
from volsched.binding.wakeup import SWEEP, WAIT_FOR_BOUND, WAKE_UPS, RedisBell, own_canary, wake_up_name
from volsched.cluster.installation_lock import InstallationLock, holder_of
from volsched.cluster.permissions import LOCKS
from volsched.cluster.port import Cluster
from volsched.log.database import Database
from volsched.log.garbage_pause import collect_seldom
from volsched.log.reads.tail import read_head
from volsched.log.store import open_store
from volsched.pv_controller.completion import LegCompletion
from volsched.runtime.clock import skew_from, system_clock
from volsched.runtime.fault_points import ArmingError, arm_from
from volsched.runtime.health_check import Heartbeat
from volsched.runtime.log_format import LogLevel, configure_logging
from volsched.runtime.log_lines import log_commits
from volsched.runtime.settings import Settings
from volsched.runtime.system import local_cluster

# The connection to Redis. With Celery's own, a worker can stay idle long after an outage.
#
# Found with tests that cut the connection: a worker that had reached its limit of unacknowledged messages, and
# could acknowledge none of them, took no further message until it was restarted. It did not detect the lost
# connection, because it no longer waited for messages.

RECONNECT_SECONDS = 2


class ForgettingQoS(redis.QoS):
    """Counts messages in progress, and limits them; forgets a message even if its acknowledgement fails."""

    def ack(self, delivery_tag: str) -> None:
        try:
            super().ack(delivery_tag)
        except Exception:
            # Redis is unreachable: the next caller has another connection, and messages may be lost.
            virtual.QoS.ack(self, delivery_tag)
            raise


class SteadyChannel(redis.Channel):
    QoS = ForgettingQoS


class SteadyTransport(redis.Transport):
    Channel = SteadyChannel


class SteadyConnection(Connection):
    """Reconnects to Redis at a fixed interval.

    Celery's own back-off grows to half a minute and cannot be configured: after a long outage all work would wait
    that long although Redis is back.
    """

    def get_transport_cls(self) -> type[SteadyTransport]:
        return SteadyTransport

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        return super().ensure_connection(
            *args, **{"interval_start": RECONNECT_SECONDS, "interval_max": RECONNECT_SECONDS, **options}
        )


# The beat of a worker: it sends a wake-up once a second, unless its last one is still in the queue.
#
# Workers that hang, or that wait for a database that does not answer, take no messages. An unconditional beat
# would fill Redis with wake-ups that all expire before they are read.


class PatientBeat(Scheduler):
    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
        if self._waits(entry.task):
            return None
        return super().apply_async(entry, producer=producer, advance=advance, **kwargs)

    def _waits(self, name: str) -> bool:
        try:
            # Each queue has the name of the task that it wakes (`wakeup.wake_up_name`).
            channel: Any = self.connection.default_channel
            return bool(channel.queue_declare(queue=name).message_count)
        except Exception:
            # Redis does not answer: sending will fail, and report it.
            return False


# The state of one worker process: its connection to the store, opened after the fork and never shared.
#
# Opened when the process starts. If the store does not answer then, every wake-up retries.


@dataclass(slots=True)
class WorkerProcess:
    owner: str
    database: Database
    executor: Executor
    sweep: Sweep
    bell: RedisBell
    heartbeat_file: Path | None

    def answer_health(self, now: int) -> None:
        with self.database.read() as connection:
            read_head(connection)
        # A new Heartbeat for every answer, because one is throttled and the health check waits for this beat.
        Heartbeat(self.heartbeat_file).beat(now)

    def recover(self, now: int) -> None:
        """Recover once per worker; retried later while another worker is recovering."""
        if _recovered[0] == 0 and recover(self.database, owner=f"worker/{self.owner}", now=now).led:
            _recovered[0] = 1


_recovered = mmap(-1, 1)
"""Memory shared by the processes of a worker, which are forks of its creator. Without a lock: any of them may be
killed at any moment, and recovery is idempotent."""
_process: WorkerProcess | None = None


def worker_process() -> WorkerProcess:
    """The state of this process, created at the first call; raises StoreError if the store does not answer."""
    global _process
    if _process is None:
        _process = _make_process()
    return _process


def close() -> None:
    global _process
    if _process is not None:
        _process.bell.close()
        _process.database.close()
    _process = None


def _make_process() -> WorkerProcess:
    settings, owner = Settings(), new_id()
    database = open_store(settings.database_url, name="volsched worker")
    cluster, may_act = _cluster(settings, database)
    log_commits(database, slow_seconds=settings.slow_transaction_seconds)
    with database.read() as connection:
        began_at = read_head(connection).position
    return WorkerProcess(
        owner=owner,
        database=database,
        executor=Executor(
            database,
            cluster,
            f"worker/{owner}",
            lease=settings.effect_lease(attached=settings.attached_mode is not None),
            began_at=0 if settings.attached_mode is None else began_at,
            clock=None if settings.attached_mode is None else system_clock,
            may_act=may_act,
            completion=None if settings.stepwise_binding else LegCompletion(f"controller/{owner}"),
        ),
        sweep=Sweep(database, f"sweep/{owner}"),
        bell=RedisBell(settings.redis_url or "", database, system_clock),
        heartbeat_file=settings.heartbeat_file,
    )


def _cluster(settings: Settings, database: Database) -> tuple[Cluster, Callable[[], bool]]:
    """Our own log, or the cluster that the store is attached to; and a check whether we may write there now."""
    if settings.attached_mode is None:
        return local_cluster(database, clock=system_clock, new_uid=lambda: str(uuid4())), lambda: True
    # Only workers of an attached store need the extra.
    from volsched.cluster.kubernetes.acting_cluster import acting_cluster

    mode = settings.attached_mode
    cluster = acting_cluster(mode, settings.cluster_kubeconfig, settings.cluster_context)
    lock = InstallationLock(
        cluster, LOCKS[mode], lambda: holder_of(database, mode), clock=system_clock, monotonic=monotonic
    )
    return cluster, lock.renew_and_check


def new_id() -> str:
    return uuid4().hex[:12]


# Every worker has its own beat. Several beats send more sweeps than needed, which is harmless; a stack started
# without `-B` would never time out a binding.

SWEEP_EVERY_SECONDS = 1.0
SWEEP_EXPIRES_SECONDS = 2.0
SOFT_SHUTDOWN_SECONDS = 20.0
"""Longer than any batch, and shorter than the usual grace period of thirty seconds."""
TASK_SECONDS = 300
"""A worker process that hangs this long is replaced; its leases have expired long before."""
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
    # The row in the database is the guarantee. A message kept until its work is done would only be redelivered
    # when it is stale.
    task_acks_late=False,
    task_time_limit=TASK_SECONDS,
    # Each has its own routing key: otherwise Celery gives all of them the same one, and every sweep would go into
    # every queue, including those of dead workers.
    task_queues=[Queue(wake_up_name(what), routing_key=wake_up_name(what)) for what in _QUEUES],
    task_routes={wake_up_name(what): {"queue": wake_up_name(what)} for what in _QUEUES},
    task_default_queue=wake_up_name(SWEEP),
    worker_prefetch_multiplier=1,
    worker_soft_shutdown_timeout=SOFT_SHUTDOWN_SECONDS,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    # Workers need no remote control, which any process with access to Redis could use.
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"socket_timeout": 10, "socket_connect_timeout": 5, "socket_keepalive": True},
    beat_scheduler="workers.app:PatientBeat",
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


def _on_setup_logging(loglevel: int | None = None, **_: Any) -> None:
    """Use our log format instead of Celery's; `--loglevel` sets the level of Celery's own messages."""
    settings = Settings()
    configure_logging(settings.log_level or LogLevel.INFO, settings.log_format)
    logging.getLogger("celery").setLevel(loglevel or logging.WARNING)


def _on_worker_init(sender: Any, **_: Any) -> None:
    """Refuse unusable settings before any process is forked: later they would only be logged."""
    if Settings().redis_url is None:
        raise SystemExit("VOLSCHED_REDIS_URL is not set: without Redis, workers run inside volsched itself")
    try:
        arm_from(os.environ)
        # Before the fork: the child processes inherit it.
        skew_from(os.environ)
    except ArmingError as error:
        raise SystemExit(str(error)) from None
    # Workers need not know each other, and with these features on they can stop consuming permanently after a
    # restart of Redis (celery issues 8030 and 8091).
    sender.options.update(without_mingle=True, without_gossip=True, without_heartbeat=True, beat=True)


def _on_process_init(**_: Any) -> None:
    arm_from(os.environ)
    worker_process()
    # Imported modules are long-lived, and every full garbage collection would walk them.
    collect_seldom()


def _on_process_shutdown(**_: Any) -> None:
    close()


def _on_beat_init(**_: Any) -> None:
    # Celery does this only for its pool: the beat of a killed worker would run forever.
    platforms.set_pdeathsig("SIGKILL")  # type: ignore[attr-defined]  # the stubs have forgotten it


def _on_ready(sender: Any, **_: Any) -> None:
    """Called whenever the worker begins to take messages: timers are lost with the connection."""
    print("at work until SIGTERM", file=sys.stderr, flush=True)
    _wake_for_all()
    sender.timer.call_repeatedly(BEAT_LOOK_SECONDS, _end_without_beat, (sender.controller.beat,))


def _wake_for_all() -> None:
    """Send all wake-ups at once, for work left by dead processes: the beat process is still starting."""
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
        _logger.warning("workers could not be woken for left-over work; the beat retries: %s", error)


def _end_without_beat(beat: Any) -> None:
    """Stop the worker if its beat has died: Celery does not replace it, and without it there are no sweeps.

    The worker exits cleanly, and its supervisor restarts it.
    """
    if not beat.is_alive() and worker_state.should_stop is None:
        _logger.error("the beat of this worker has died; the worker exits, for its supervisor to restart it")
        worker_state.should_stop = os.EX_SOFTWARE  # type: ignore[assignment]  # what it is at first is all they know


# Not weak: these functions have no other references.
signals.setup_logging.connect(_on_setup_logging, weak=False)
signals.worker_init.connect(_on_worker_init, weak=False)
signals.worker_process_init.connect(_on_process_init, weak=False)
signals.worker_process_shutdown.connect(_on_process_shutdown, weak=False)
signals.beat_embedded_init.connect(_on_beat_init, weak=False)
signals.worker_ready.connect(_on_ready, weak=False)
