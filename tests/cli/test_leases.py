"""`volsched leases`: who acts in a role of which there is one, and taking it from its holder."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Run
from tests.support.log_reads import log
from tests.support.serving import served
from volsched.log.database import Database
from volsched.log.leases import acquire, current, renew
from volsched.runtime.clock import SECOND, system_clock

TTL = 3_600 * SECOND


@pytest.fixture
def database(sqlite: Database) -> Database:
    return sqlite


@pytest.fixture(params=["the store", "over HTTP"])
def words(
    request: pytest.FixtureRequest, database: Database, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """What comes before the command: how it finds the store."""
    if request.param == "the store":
        monkeypatch.setenv("VOLSCHED_DATABASE_URL", str(database.engine.url))
        yield []
        return
    with served(database) as api:
        yield ["--server", api.url]


def test_a_lease_is_listed_freed_and_can_be_taken_by_another(
    run: Run, database: Database, words: list[str]
) -> None:
    assert run(*words, "leases", "list").out == "no lease is held\n"
    lease = acquire(database, name="controller", holder="host-1", now=system_clock(), ttl=TTL)
    assert lease is not None
    shown = run(*words, "leases", "list").out.splitlines()
    assert shown[0].split() == ["name", "holder", "epoch", "renewed", "until", "state"]
    assert shown[1].split()[:3] == ["controller", "host-1", "1"]
    assert shown[1].split()[-1] == "held"
    (row,) = json.loads(run(*words, "leases", "list", "-o", "json").out)["items"]
    assert (row["name"], row["holder"], row["held"], row["why"]) == ("controller", "host-1", True, "")

    freed = run(*words, "leases", "free", "controller", "--reason", "its machine is cut off")
    assert (freed.code, freed.out) == (0, "controller is free; host-1 held it in epoch 1\n")
    assert current(database, name="controller") is None
    assert renew(database, lease, now=system_clock(), ttl=TTL) is None
    assert run(*words, "leases", "list").out == "no lease is held\n"
    heir = acquire(database, name="controller", holder="host-2", now=system_clock(), ttl=TTL)
    assert heir is not None
    assert heir.epoch > lease.epoch
    (event,) = (it for it in log(database) if it.type == "LeaseFreed")
    assert event.stream == "lease/controller"
    assert json.loads(event.data)["reason"] == "its machine is cut off"


def test_a_lease_that_has_run_out_is_listed_as_over(run: Run, database: Database, words: list[str]) -> None:
    past = system_clock() - 2 * TTL
    assert acquire(database, name="controller", holder="host-1", now=past, ttl=TTL) is not None
    (row,) = json.loads(run(*words, "leases", "list", "-o", "json").out)["items"]
    assert (row["held"], row["why"]) == (False, "it has run out")
    assert "over: it has run out" in run(*words, "leases", "list").out


@pytest.mark.parametrize("name", ["controler", "a/b", "é"])
def test_a_name_that_nobody_holds_is_reported_and_changes_nothing(
    run: Run, database: Database, words: list[str], name: str
) -> None:
    lease = acquire(database, name="controller", holder="host-1", now=system_clock(), ttl=TTL)
    refused = run(*words, "leases", "free", name, "--reason", "a slip")
    assert (refused.code, refused.out) == (3, "")
    assert f'lease "{name}" has no holder; see volsched leases list' in refused.err
    assert current(database, name="controller") == lease
