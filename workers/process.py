"""What one worker process works with: its connection to the store, made after the fork and never shared.

Made when the process starts. A store that does not answer then is tried again with every wake-up.
"""

from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from uuid import uuid4

from volsched.binding.executor import Executor
from volsched.binding.recovery import recover
from volsched.binding.sweep import Sweep
from volsched.binding.wakeup import RedisBell
from volsched.log.database import Database
from volsched.log.reads.tail import read_head
from volsched.log.store import open_store
from volsched.runtime.clock import SECOND, system_clock
from volsched.runtime.heartbeat import Heartbeat
from volsched.runtime.settings import Settings
from volsched.runtime.system import local_cluster


@dataclass(slots=True)
class Hands:
    owner: str
    database: Database
    executor: Executor
    sweep: Sweep
    bell: RedisBell
    heartbeat_file: Path | None

    def answer_health(self, now: int) -> None:
        with self.database.read() as connection:
            read_head(connection)
        # One of its own for every answer: the health check waits for this beat, however soon after the last.
        Heartbeat(self.heartbeat_file).beat(now)

    def recover(self, now: int) -> None:
        """Once in the life of a worker; later, while another worker is at it."""
        if _recovered[0] == 0 and recover(self.database, owner=f"worker/{self.owner}", now=now).led:
            _recovered[0] = 1


_recovered = mmap(-1, 1)
"""Memory that the processes of a worker share, because they are forks of the one that made it. Without a lock: one
of them may be killed at any moment, and recovering twice does no harm."""
_hands: Hands | None = None


def hands() -> Hands:
    """Raises what is wrong with the store."""
    global _hands
    if _hands is None:
        _hands = _made()
    return _hands


def close() -> None:
    global _hands
    if _hands is not None:
        _hands.bell.close()
        _hands.database.close()
    _hands = None


def _made() -> Hands:
    settings, owner = Settings(), new_id()
    database = open_store(settings.database_url, name="volsched worker")
    return Hands(
        owner=owner,
        database=database,
        executor=Executor(
            database,
            local_cluster(database, clock=system_clock, new_uid=lambda: str(uuid4())),
            f"worker/{owner}",
            lease=int(settings.lease_seconds * SECOND),
        ),
        sweep=Sweep(database, f"sweep/{owner}"),
        bell=RedisBell(settings.redis_url or "", database, system_clock),
        heartbeat_file=settings.heartbeat_file,
    )


def new_id() -> str:
    return uuid4().hex[:12]
