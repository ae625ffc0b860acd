"""What happens between a decision and its commit."""

from collections.abc import Callable
from typing import Any

from tests.support.clusters import Manifest, Stepped
from volsched.runtime import fault_points


def once_decided(deed: Callable[[], Any]) -> None:
    """Do something else between the next decisions and their commit."""

    def reached(at: str) -> None:
        if at == "scheduler.decided":
            fault_points.arm(None, drill=False)
            deed()

    fault_points.arm(reached, drill=True)


def change(
    stepped: Stepped, kind: str, key: str, deed: Callable[[Manifest], None], *, status: bool = False
) -> None:
    held: Manifest = dict(stepped.cluster.get(kind, key) or {})
    deed(held)
    stepped.cluster.update(kind, held, status=status)
