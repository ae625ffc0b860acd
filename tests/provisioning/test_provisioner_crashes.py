"""A process that dies at any commit while it provisions or deletes leaves no directory and no volume behind."""

from pathlib import Path

import pytest

from tests.provisioning.host_paths import (
    bound,
    directories,
    give_up,
    on_host,
    on_sqlite,
)
from tests.support.storage import CLAIM, Cluster, asked, using
from volsched.log.database import Database
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND


class Crash:
    """Break the process at the n-th time that a place is reached."""

    def __init__(self, point: str, times: int) -> None:
        self.point, self.left, self.happened = point, times, False

    def __call__(self, point: str) -> None:
        self.left -= point == self.point
        if self.left == 0 and not self.happened:
            self.happened = True
            raise fault_points.FaultError

    def break_(self, cluster: Cluster, *, steps: int) -> None:
        fault_points.arm(self, drill=True)
        try:
            for _ in range(steps):
                cluster.step(after=SECOND // 10)
        except fault_points.FaultError:
            pass
        finally:
            fault_points.arm(None, drill=False)


COMMITS = 12
"""More than it takes to bind a provisioned claim, and to delete it again."""


@on_sqlite
@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
@pytest.mark.parametrize("times", range(1, COMMITS))
def test_a_crash_while_a_claim_is_provisioned_leaks_nothing(
    database: Database, root: Path, point: str, times: int
) -> None:
    """The claim is deleted before anybody starts again, or it is not and gets its volume."""
    cluster = on_host(database, root, asked(), using())
    Crash(point, times).break_(cluster, steps=8)
    again = on_host(database, root, owner="second")
    again.now = cluster.now + 20 * SECOND
    if times % 2:
        bound(again)
        assert directories(root) == set(again.volumes()) == {again.volume_of("data")}
    give_up(again)
    assert directories(root) == set(again.volumes()) == set()


@on_sqlite
@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
@pytest.mark.parametrize("times", range(1, COMMITS, 2))
def test_a_crash_while_a_volume_is_deleted_leaks_nothing(
    database: Database, root: Path, point: str, times: int
) -> None:
    cluster = bound(on_host(database, root, asked(), using()))
    cluster.delete("Pod", "app")
    cluster.delete(CLAIM, "data")
    Crash(point, times).break_(cluster, steps=8)
    again = on_host(database, root, owner="second")
    again.now = cluster.now + 20 * SECOND
    again.rest()
    assert directories(root) == set(again.volumes()) == set()
