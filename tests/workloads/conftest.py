"""A cluster of three nodes with a disk each, stepped by hand."""

import pytest

from tests.support.clusters import Stepped
from tests.workloads.played_sets import disks
from volsched.log.database import Database


@pytest.fixture
def stepped(sqlite: Database) -> Stepped:
    return Stepped(sqlite, disks(3))
