"""The beat of a worker: rings once a second, unless its last ring still waits to be taken.

Workers that hang, or that wait for a database that does not answer, take no messages. A beat that went on would
fill Redis with rings that have all expired by the time somebody looks at them.
"""

from typing import Any

from celery.beat import Scheduler


class PatientBeat(Scheduler):
    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
        if self._waits(entry.task):
            return None
        return super().apply_async(entry, producer=producer, advance=advance, **kwargs)

    def _waits(self, name: str) -> bool:
        try:
            # Queues are called as the task that they wake (`bell.wake_up_name`).
            channel: Any = self.connection.default_channel
            return bool(channel.queue_declare(queue=name).message_count)
        except Exception:
            # Redis does not answer: sending will find out, and say so.
            return False
