"""Two nodes, three claims with a volume each, two pods: what the tests of binding transactions play with."""

import pytest

from tests.support.binding_truths import is_free
from tests.support.binding_world import Where, World
from volsched.log.database import Database

A, B, C = "db/a", "db/b", "db/c"
LEGS = {A: "pv-a", B: "pv-b", C: "pv-c"}
VOLUMES = tuple(LEGS.values())


@pytest.fixture(params=["local", "foreign"])
def where(request: pytest.FixtureRequest) -> Where:
    place: Where = request.param
    return place


@pytest.fixture
def world(database: Database, where: Where) -> World:
    return furnished(World(database, where))


def furnished(world: World) -> World:
    """Two nodes, a volume on the first for each of three claims, and two pods."""
    world.checking = False
    world.node("n1")
    world.node("n2")
    for key, volume in LEGS.items():
        world.claim(key.partition("/")[2])
        world.volume(volume)
    world.pod("app")
    world.pod("other")
    world.checking = True
    return world


def plan_and_write(world: World) -> None:
    world.plan("b1", "db/app", LEGS)
    world.step("prebind")
    assert world.legs("b1") == ["written", "written", "written"]


def assert_undone(world: World, binding: str = "b1", *volumes: str) -> None:
    assert world.phase(binding) == "rolled-back"
    assert world.effects() == set()
    assert [volume for volume in volumes or VOLUMES if not is_free(world, volume)] == []
    assert world.violations() == []


def node_of(world: World, pod: str = "db/app") -> str | None:
    found = world.shown(f"pod/{pod}")
    return None if found is None else found["spec"].get("nodeName")
