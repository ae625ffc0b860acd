"""The worker's line to Redis: what could not be acknowledged does not keep it from taking what comes next."""

from typing import Any

import pytest
from kombu import Queue
from kombu.exceptions import OperationalError

from tests.stack.processes import Redis
from tests.stack.proxy import Line, to_port
from tests.support.patience import HANG_SECONDS
from workers.app import SteadyConnection

PREFETCH = 2


def test_messages_that_cannot_be_acknowledged_are_under_way_no_more(broker: Redis) -> None:
    line = Line(to_port(broker.port))
    connection = SteadyConnection(f"redis://127.0.0.1:{line.port}/0")
    channel: Any = connection.channel()
    taken: list[Any] = []
    with connection.Producer(channel) as producer:
        for number in range(PREFETCH):
            producer.publish({"number": number}, routing_key="work", declare=[Queue("work")])
    with connection.Consumer([Queue("work")], channel=channel, callbacks=[lambda _, it: taken.append(it)]) as it:
        it.qos(prefetch_count=PREFETCH)
        while len(taken) < PREFETCH:
            connection.drain_events(timeout=HANG_SECONDS)
        assert not channel.qos.can_consume()
        broker.stop()
        for message in taken:
            with pytest.raises((OperationalError, *connection.connection_errors)):
                message.ack()
        assert channel.qos.can_consume()
        broker.start()
        line.cut()
    line.close()
