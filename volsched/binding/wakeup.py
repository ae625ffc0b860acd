"""The bell: wakes the workers of a stack through Redis, for effects that are in the database already.

A wake-up says which queue to look into and nothing else, so one that is lost, late or doubled does no harm: every
second a sweep rings for whatever is due. Whoever rings has committed something and must not fail for Redis' sake.

A queue in which a wake-up waits to be taken is not rung again: whoever takes it looks after us, and a burst of
commits sends as few messages as there are looks. Rejected: at most one message in so many milliseconds; the last
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
"""What workers can be woken for; each is a task and a Celery queue of that name."""
EXPIRES_SECONDS = 5
"""By then the sweep has rung several times."""
TIMEOUT_SECONDS = 0.5
SILENCE = 1 * SECOND
"""How long Redis is left alone after it did not answer; meanwhile the callers lose no time."""

_logger = logging.getLogger(__name__)


def wake_up_name(what: str) -> str:
    """How the task and its queue are called in Redis, which others may use too."""
    return f"volsched.{what}"


def own_canary(instance: str) -> str:
    """The canary of one worker: a wake-up that no other one takes, so that its answer is about nobody else."""
    return f"{CANARY}.{instance}"


@dataclass(slots=True)
class RedisBell:
    url: str
    """Of Redis."""
    database: Database
    clock: Clock
    _app: Celery = field(init=False)
    _connection: Connection | None = None
    _silent_until: int = 0
    _failing: bool = False

    def __post_init__(self) -> None:
        # Enough of Celery to send messages, in processes that run tasks and in those that run none.
        self._app = Celery("volsched", broker=self.url, set_as_current=False)
        self._app.conf.update(task_serializer="json", accept_content=["json"])

    def __call__(self) -> None:
        """Wake workers for every queue in which something is due."""
        for queue in due_queues(self.database, QUEUES, now=self.clock()):
            self.ring(queue)

    def ring(self, what: str) -> None:
        """One wake-up, unless one waits to be taken."""
        now = self.clock()
        if now < self._silent_until:
            return
        try:
            self._send(wake_up_name(what))
        except Exception as error:
            # Whatever Redis, the network or a client library comes up with, the work is in the database.
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
