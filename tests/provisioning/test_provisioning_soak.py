"""Claims and pods come and go, provisioners fail and processes die; in the end nothing is left behind."""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.support.extent import extended, extent
from tests.support.storage import CLAIM, OUTSIDE, Cluster, asked, in_zones, made_by, using
from volsched.cluster.port import CallRefusedError, whole
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.provisioning.host_path import HOST_PATH, RECORDS, HostPath
from volsched.provisioning.simulated import SIMULATED, Array, Simulated
from volsched.questions.invariants import violations
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND

MISHAPS = ("exhausted", "refused", "raise", "too-small", "", "", "", "")
ROUNDS = extent(30, 60)
CRASH_CHANCE = 0.02
"""At each named place."""


class Soak:
    def __init__(self, database: Database, root: Path, seed: int) -> None:
        self.rng, self.database, self.root = Random(seed), database, root
        self.inside, self.outside = (
            Array(seed=seed, mishap=lambda _, before: self.rng.choice(MISHAPS) if before < 4 else "")
            for _ in range(2)
        )
        self.crashes = self.names = 0
        self.cluster = self.start(0)
        classes = [
            (HOST_PATH, {}),
            (SIMULATED, {"capacityPerDomain": "30Gi", "latencySeconds": "2"}),
            (OUTSIDE, {}),
        ]
        self.cluster.create(*in_zones("abc"), *(made_by(by, f"c{n}", **it) for n, (by, it) in enumerate(classes)))

    def start(self, now: int) -> Cluster:
        """A new process for everybody; the storage is what it was."""
        provisioners = [HostPath(self.root), Simulated(self.inside)]
        owner = f"run-{self.crashes}"
        cluster = Cluster(self.database, outside=self.outside, owner=owner, provisioners=provisioners)
        cluster.now = max(now, cluster.now)
        return cluster

    def play(self) -> None:
        for _ in range(ROUNDS):
            with suppress(CallRefusedError):
                self.rng.choice((self.create, self.create, self.delete, self.delete_volume))()
            fault_points.arm(self.maybe_crash, drill=True)
            try:
                for _ in range(3):
                    self.cluster.step(after=self.rng.randint(0, 2 * SECOND))
            except fault_points.FaultError:
                fault_points.arm(None, drill=False)
                self.crashes += 1
                self.cluster = self.start(self.cluster.now + self.rng.randint(0, 40 * SECOND))
            finally:
                fault_points.arm(None, drill=False)

    def maybe_crash(self, _point: str) -> None:
        if self.rng.random() < CRASH_CHANCE:
            raise fault_points.FaultError

    def create(self) -> None:
        self.names += 1
        names = [f"d{self.names}-{index}" for index in range(self.rng.randint(1, 2))]
        for name in names:
            self.cluster.create(asked(name, f"{self.rng.randint(1, 9)}Gi", f"c{self.rng.randrange(3)}"))
        self.cluster.create(using(f"p{self.names}", *names, seconds=self.rng.choice((3, 600))))

    def delete(self) -> None:
        number = self.rng.randint(1, max(self.names, 1))
        if self.rng.random() < 0.7:
            self.cluster.delete("Pod", f"p{number}")
        self.cluster.delete(CLAIM, f"d{number}-0")

    def delete_volume(self) -> None:
        volumes = sorted(self.cluster.volumes())
        if volumes:
            self.cluster.cluster.delete("PersistentVolume", self.rng.choice(volumes))

    def end(self) -> None:
        """Everything is deleted, and nothing fails any more."""
        for kind in ("Pod", CLAIM):
            for it in whole(self.cluster.cluster.list(kind)).objects:
                self.cluster.delete(kind, it["metadata"]["name"])
        for _ in range(60):
            self.cluster.step(after=15 * SECOND)


@extended
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_left_behind(database: Database, tmp_path: Path, seed: int) -> None:
    soak = Soak(database, tmp_path / "root", seed)
    soak.play()
    assert (soak.crashes > 0, "ProvisioningSucceeded" in soak.cluster.told()) == (True, True)
    soak.end()
    assert [it["metadata"]["name"] for it in whole(soak.cluster.cluster.list(CLAIM)).objects] == []
    assert soak.cluster.volumes() == {}
    assert (list(soak.inside.volume_names()), list(soak.outside.volume_names())) == ([], [])
    assert [it.name for it in soak.root.iterdir()] == [RECORDS]
    assert list((soak.root / RECORDS).iterdir()) == []
    assert dict(soak.cluster.system.picture.index.snapshot.reserved) == {}
    with database.read() as connection:
        assert violations(connection, at_rest=True) == []
    assert verify(database).ok
