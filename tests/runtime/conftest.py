"""What tests of whole systems need: own mode on a cluster of two nodes."""

from collections.abc import Iterator

import pytest

from tests.support.attached_cluster import Attached, attached, two_nodes
from tests.support.serving import strict_cluster
from volsched.log.database import Database


@pytest.fixture
def own(sqlite: Database) -> Iterator[Attached]:
    with strict_cluster() as running, attached(running, sqlite) as it:
        it.create(*two_nodes())
        yield it
