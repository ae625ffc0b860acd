"""The bell: wakes the workers of a stack through Redis for effects that are already in the database.

A wake-up names a queue and nothing else, so a lost, late or duplicate one does no harm: every second a sweep rings
for all due work. The caller has committed its work and must not fail because of Redis.

A queue with a pending wake-up is not rung again: the worker that takes it reads after our commit, and a burst of
commits sends as few messages as there are reads. Rejected: a rate limit of one message per interval; the last
commit of a burst would then wait for the sweep.
"""

import logging
from dataclasses import dataclass, field
from typing import Any

from celery import Celery
from kombu import Connection

from volsched.binding.executor import QUEUES
from volsched.log.database import Database
from volsched.log.effects import due_queues
from volsched.runtime.clock import SECOND, Clock

SWEEP, WAIT_FOR_BOUND, CANARY = "sweep", "wait_for_bound", "canary"
WAKE_UPS = (*QUEUES, WAIT_FOR_BOUND, SWEEP, CANARY)
"""The possible wake-ups; each is a task and a Celery queue of that name."""
EXPIRES_SECONDS = 5
"""Expiry of a wake-up: the sweep has sent several others by then."""
TIMEOUT_SECONDS = 0.5
SILENCE = 1 * SECOND
"""Pause of calls to Redis after it failed to answer, so that callers do not wait for it."""

_logger = logging.getLogger(__name__)


def wake_up_name(what: str) -> str:
    """The name of the task and its queue in Redis, which other applications may share."""
    return f"volsched.{what}"


def own_canary(instance: str) -> str:
    """The canary of one worker: no other worker takes this wake-up, so its answer is about that worker alone."""
    return f"{CANARY}.{instance}"


@dataclass(slots=True)
class RedisBell:
    url: str
    """The URL of Redis."""
    database: Database
    clock: Clock
    _app: Celery = field(init=False)
    _connection: Connection | None = None
    _silent_until: int = 0
    _failing: bool = False

    def __post_init__(self) -> None:
        # A minimal Celery application to send messages, also in processes that run no tasks.
        self._app = Celery("volsched", broker=self.url, set_as_current=False)
        self._app.conf.update(task_serializer="json", accept_content=["json"])

    def __call__(self) -> None:
        """Wake workers for every queue with due work."""
        for queue in due_queues(self.database, QUEUES, now=self.clock()):
            self.ring(queue)

    def ring(self, what: str) -> None:
        """Send one wake-up, unless one is pending."""
        now = self.clock()
        if now < self._silent_until:
            return
        try:
            self._send(wake_up_name(what))
        except Exception as error:
            # Any error of Redis, the network or the client library is ignored: the work is in the database.
            self.close()
            self._silent_until = now + SILENCE
            if not self._failing:
                _logger.warning("workers cannot be woken, they will be late by a second or so: %s", error)
            self._failing = True
        else:
            if self._failing:
                _logger.warning("workers can be woken again")
            self._failing = False

    def close(self) -> None:
        if self._connection is not None:
            self._connection.release()
            self._connection = None

    def _send(self, name: str) -> None:
        if self._connection is None:
            self._connection = self._app.connection_for_write(
                connect_timeout=TIMEOUT_SECONDS, transport_options=_IMPATIENT
            )
        channel: Any = self._connection.default_channel
        if channel.queue_declare(queue=name).message_count == 0:
            self._app.send_task(
                name,
                queue=name,
                expires=EXPIRES_SECONDS,
                ignore_result=True,
                retry=False,
                connection=self._connection,
            )


_IMPATIENT = {
    "socket_timeout": TIMEOUT_SECONDS,
    "socket_connect_timeout": TIMEOUT_SECONDS,
    "max_retries": 1,
    "interval_start": 0,
}
