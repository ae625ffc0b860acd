"""A system that is recreated when its memory may be stale; and what its process does about garbage meanwhile."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass, field
from weakref import ref

import pytest

from volsched.log.errors import StoreError
from volsched.log.garbage_pause import YOUNG, collect_as_usual
from volsched.runtime.runner import STEP_BACK, RestartingSystem


@dataclass(eq=False)
class Loaded:
    """A system that refers to itself, as those with parts do, and fails when it is told to."""

    fails: bool = False
    closed: bool = False
    itself: list["Loaded"] = field(default_factory=list)

    def step(self, now: int) -> int:
        if self.fails:
            raise StoreError("the server does not answer")
        self.itself.append(self)
        return now

    def rests_until(self, now: int) -> int:
        return now

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def as_usual() -> Iterator[None]:
    yield
    collect_as_usual()


def test_it_is_recreated_after_a_failure_of_the_store_and_when_the_clock_is_set_back() -> None:
    made = [Loaded(), Loaded(), Loaded()]
    left = iter(made)
    standing = RestartingSystem(lambda: next(left))
    assert standing.step(STEP_BACK) == STEP_BACK
    made[0].fails = True
    with pytest.raises(StoreError):
        standing.step(STEP_BACK)
    assert (standing.step(STEP_BACK), made[0].closed, made[1].closed) == (STEP_BACK, True, False)
    assert (standing.step(1), made[1].closed) == (1, False)
    assert (standing.step(-STEP_BACK), made[1].closed, made[2].closed) == (-STEP_BACK, True, False)


def test_garbage_is_collected_seldom_while_it_runs_and_what_is_left_of_it_afterwards() -> None:
    usual = gc.get_threshold()
    made = [Loaded()]
    there = ref(made[0])
    standing = RestartingSystem(made.pop)
    assert gc.get_threshold() == usual
    standing.step(1)
    assert gc.get_threshold()[0] == YOUNG
    standing.close()
    assert gc.get_threshold() == usual
    gc.collect()
    assert there() is None
