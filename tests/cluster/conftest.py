"""Every cluster that we can play, behind the one port."""

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest

from tests.conftest import unsynced
from tests.support.store_samples import NOW
from volsched.cluster.foreign_server import ForeignApi
from volsched.cluster.local import LocalCluster
from volsched.cluster.port import Cluster
from volsched.cluster.simulated import SimulatedCluster
from volsched.log.commands import Command, Done
from volsched.log.database import open_database
from volsched.log.transaction import execute

TIME = "2026-11-16T12:00:00Z"


@pytest.fixture(params=["local", "simulated"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, migrated_file: Path) -> Iterator[Cluster]:
    if request.param == "simulated":
        yield SimulatedCluster(ForeignApi(now_text=lambda: TIME), Random(1))
        return
    database = open_database(f"sqlite:///{shutil.copyfile(migrated_file, tmp_path / 'store.db')}")
    unsynced(database)

    def append(command: Command) -> Done:
        (outcome,) = execute(database, [command], now=NOW)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    uids = count(1)
    yield LocalCluster(database, append, new_uid=lambda: f"uid-{next(uids)}", now_text=lambda: TIME)
    database.close()
