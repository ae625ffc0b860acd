"""The order in which objects come makes no difference: to nobody whether a controller has looked at them yet."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, pod, volume
from tests.support.fresh_stores import unsynced_store
from volsched.log.database import Database
from volsched.provisioning.simulated import SIMULATED, Simulated
from volsched.runtime.clock import SECOND

MADE: Manifest = {**LOCAL, "metadata": {"name": "made"}, "provisioner": SIMULATED}
AT_ONCE: Manifest = {**MADE, "metadata": {"name": "at-once"}, "volumeBindingMode": "Immediate"}
NODES = [node(f"node-{number}", **{"topology.kubernetes.io/zone": f"z{number}"}) for number in range(4)]
STATIC = {"plain": "plain-disk", "local": "local-disk", "at-once": "at-once-disk"}
"""Pods, each with a claim of its name, and the volume that fits it; there is a provisioner for two of them."""
FITTING: list[Manifest] = [
    LOCAL, MADE, AT_ONCE, *NODES,
    volume("plain-disk", "5Gi", "node-3", "made"), claim("plain", "4Gi", "made"), pod("plain", "plain"),
    volume("local-disk", "5Gi", "node-2"), claim("local", "4Gi"), pod("local", "local"),
    volume("at-once-disk", "5Gi", "node-1", "at-once"), claim("at-once", "4Gi", "at-once"),
    pod("at-once", "at-once"),
]  # fmt: skip
CLASSES = {"plain": "made", "local": "local", "at-once": "at-once"}


def asking() -> list[Manifest]:
    """A volume that names its claim, a claim that names its volume, and a pod that could use either."""
    kept, named, other = (volume(f"{name}-disk", "5Gi", "node-2") for name in ("kept", "named", "other"))
    kept["spec"]["claimRef"] = {"namespace": "default", "name": "kept"}
    asks = claim("named", "4Gi")
    asks["spec"]["volumeName"] = "named-disk"
    other["spec"]["capacity"]["storage"] = "50Gi"
    claims = [claim("kept", "4Gi"), asks, claim("other", "4Gi")]
    return [kept, named, other, *claims, *(pod(name, name) for name in ("kept", "named", "other"))]


EVERYTHING = [*FITTING, *asking()]
ENDS = {**STATIC, "kept": "kept-disk", "named": "named-disk", "other": "other-disk"}
HOSTS = {"plain": "node-3", "local": "node-2", "at-once": "node-1", "kept": "node-2", "named": "node-2",
         "other": "node-2"}  # fmt: skip
numbers = count()
orders = st.integers(0, 2**32)
quick = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextmanager
def store(directory: Path, migrated_file: Path) -> Iterator[Database]:
    path = directory / f"{next(numbers)}.db"
    shutil.copyfile(migrated_file, path)
    with unsynced_store(path) as opened:
        yield opened


def shuffled(objects: list[Manifest], seed: int) -> list[Manifest]:
    return Random(seed).sample(objects, len(objects))


def ends(stepped: Stepped, names: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    return {name: (stepped.node_of(name), stepped.volume_of(name)) for name in names}


def all_static(stepped: Stepped) -> None:
    stepped.settle()
    assert ends(stepped, ENDS) == {name: (HOSTS[name], disk) for name, disk in ENDS.items()}


@pytest.mark.parametrize("seed", [0, 1])
def test_what_came_in_any_order_is_decided_alike(database: Database, seed: int) -> None:
    all_static(Stepped(database, shuffled(EVERYTHING, seed), provisioners=[Simulated()]))


@given(orders)
@quick
def test_any_order_before_a_decision_gives_the_same_result(tmp_path: Path, migrated_file: Path, seed: int) -> None:
    with store(tmp_path, migrated_file) as database:
        all_static(Stepped(database, shuffled(EVERYTHING, seed), provisioners=[Simulated()]))


@given(orders)
@quick
def test_whenever_things_come_all_are_placed_and_static_goes_first(
    tmp_path: Path, migrated_file: Path, seed: int
) -> None:
    random, came = Random(seed), dict[tuple[str, str], int]()
    with store(tmp_path, migrated_file) as database:
        stepped = Stepped(database, provisioners=[Simulated()])
        for moment, manifest in enumerate(shuffled(FITTING, seed)):
            stepped.create(manifest)
            came[manifest["kind"], manifest["metadata"]["name"]] = moment
            if random.random() < 0.4:
                stepped.step(after=random.choice([0, 100_000, 2_000_000]))
        stepped.settle()
        for _ in range(3):
            # A controller that looked too early looks again.
            stepped.step(after=20 * SECOND)
        stepped.settle()
        first = min(came["Node", it["metadata"]["name"]] for it in NODES)
        for name, (host, held) in ends(stepped, STATIC).items():
            assert host is not None, name
            asked = [("StorageClass", CLASSES[name]), ("PersistentVolumeClaim", name)]
            static, dynamic = came["PersistentVolume", STATIC[name]], max(came[it] for it in asked)
            if name != "at-once":
                # Its first consumer decides, as soon as there is any node.
                static, dynamic = max(static, came["Node", HOSTS[name]]), max(dynamic, came["Pod", name], first)
            if static < dynamic:
                assert held == STATIC[name], name
