"""The line to Redis, where Celery's own would let a worker lie still after an outage that is long over.

Found with tests that cut the line: a worker that had as many messages under way as it may take at once, and could
acknowledge none of them, took no further message for the rest of its life. It had not even noticed that the line
was lost, because it was not waiting for messages any more.
"""

from typing import Any

from kombu import Connection
from kombu.transport import redis, virtual

RECONNECT_SECONDS = 2


class ForgettingQoS(redis.QoS):
    """What is under way, so that no more is taken than can be worked on."""

    def ack(self, delivery_tag: str) -> None:
        try:
            super().ack(delivery_tag)
        except Exception:
            # Redis will not be told any more: who asks next has another connection, and messages may be lost.
            virtual.QoS.ack(self, delivery_tag)
            raise


class SteadyChannel(redis.Channel):
    QoS = ForgettingQoS


class SteadyTransport(redis.Transport):
    Channel = SteadyChannel


class SteadyConnection(Connection):
    """Tries to reach Redis again at a steady pace.

    Celery's own waits grow to half a minute, for which no setting is read: after a long outage all work would lie
    still for so long although Redis is back.
    """

    def get_transport_cls(self) -> type[SteadyTransport]:
        return SteadyTransport

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        return super().ensure_connection(
            *args, **{"interval_start": RECONNECT_SECONDS, "interval_max": RECONNECT_SECONDS, **options}
        )
