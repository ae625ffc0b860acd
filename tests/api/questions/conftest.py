"""A store with a history (pods placed, one refused, one reserved for, work given up), and a server on it."""

from collections.abc import Iterator

import pytest

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.fresh_stores import fresh_store
from tests.support.serving import Served, served
from volsched.log.database import Database

DISKS = [
    LOCAL,
    node("n0"),
    node("n1"),
    volume("n0-small", "2Gi", "n0"),
    volume("n0-large", "5Gi", "n0"),
    volume("n1-small", "2Gi", "n1"),
    volume("n1-large", "6Gi", "n1"),
    claim("small", "1Gi"),
    claim("large", "4Gi"),
    claim("huge", "90Gi"),
    claim("free", "4Gi"),
]


def theirs(name: str, *claims: str) -> dict[str, object]:
    """A pod that our scheduler leaves alone."""
    made = pod(name, *claims)
    return made | {"spec": made["spec"] | {"schedulerName": "theirs"}}


def furnished(database: Database) -> Stepped:
    """`db` is placed, `big` fits nowhere, `web` waits for another scheduler."""
    stepped = Stepped(database, [*DISKS, pod("db", "small", "large"), pod("big", "huge"), theirs("web", "free")])
    stepped.settle()
    return stepped


@pytest.fixture
def own(sqlite: Database) -> Iterator[Served]:
    """The API alone: nothing moves but what a test sends."""
    furnished(sqlite)
    with served(sqlite) as running:
        yield running


@pytest.fixture(scope="module")
def own_shared() -> Iterator[Served]:
    """One for all tests of a module, whatever they leave behind."""
    with fresh_store() as database:
        furnished(database)
        with served(database) as running:
            yield running
