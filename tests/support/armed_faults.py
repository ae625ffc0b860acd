"""Something happens at a named place of the code while a test runs: a process dies, or somebody else acts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from volsched.runtime import fault_points
from volsched.runtime.fault_points import Fault


class DiedError(BaseException):
    """The end of a process: nothing that catches errors catches it."""


@contextmanager
def armed(hook: Callable[[str], None]) -> Iterator[None]:
    fault_points.arm(hook, drill=True)
    try:
        yield
    finally:
        fault_points.arm(None, drill=False)


def once(point: str, act: Callable[[], None]) -> Callable[[str], None]:
    """Do something the first time that the place is reached; what happens meanwhile reaches no place."""

    def fire() -> None:
        fault_points.arm(None, drill=False)
        act()

    return Fault(point, fire)


def die() -> None:
    raise DiedError
