"""What a driver's answer means: every row of the table."""

import pytest

from volsched.provisioning.rules import Created, DriverCode, DriverRefusal, Next, judge

ASKED = 100


def refused(code: DriverCode) -> DriverRefusal:
    return DriverRefusal(code, "why")


@pytest.mark.parametrize(
    ("answer", "topology", "node", "follows", "infeasible", "delete"),
    [
        (Created(handle="v"), True, True, Next.DONE, False, False),
        (Created(handle="v", bytes=ASKED), True, True, Next.DONE, False, False),
        (Created(handle="v", bytes=ASKED + 1), True, True, Next.DONE, False, False),
        (Created(handle="v", bytes=ASKED - 1), True, True, Next.BACKGROUND, False, True),
        (refused(DriverCode.RESOURCE_EXHAUSTED), True, True, Next.RESCHEDULE, False, False),
        (refused(DriverCode.RESOURCE_EXHAUSTED), False, True, Next.FINISHED, False, False),
        (refused(DriverCode.RESOURCE_EXHAUSTED), True, False, Next.FINISHED, False, False),
        (refused(DriverCode.CANCELED), True, True, Next.BACKGROUND, False, False),
        (refused(DriverCode.DEADLINE_EXCEEDED), True, True, Next.BACKGROUND, False, False),
        (refused(DriverCode.UNAVAILABLE), True, True, Next.BACKGROUND, False, False),
        (refused(DriverCode.ABORTED), True, True, Next.BACKGROUND, False, False),
        (refused(DriverCode.NOT_GRPC), True, True, Next.BACKGROUND, False, False),
        (refused(DriverCode.INVALID_ARGUMENT), True, True, Next.FINISHED, True, False),
        (refused(DriverCode.INTERNAL), True, True, Next.FINISHED, False, False),
    ],
)
def test_what_follows(
    answer: Created | DriverRefusal, topology: bool, node: bool, follows: Next, infeasible: bool, delete: bool
) -> None:
    verdict = judge(answer, wanted_bytes=ASKED, topology=topology, node_selected=node)
    assert (verdict.next, verdict.infeasible, verdict.delete) == (follows, infeasible, delete)


def test_every_code_has_its_row() -> None:
    """A code that is added must say what follows from it; only exhaustion sends a pod elsewhere."""
    found = {
        code: judge(refused(code), wanted_bytes=ASKED, topology=True, node_selected=True).next
        for code in DriverCode
    }
    assert [code for code, follows in found.items() if follows is Next.RESCHEDULE] == [
        DriverCode.RESOURCE_EXHAUSTED
    ]
    assert all(
        "why" in judge(refused(code), wanted_bytes=1, topology=False, node_selected=False).why
        for code in DriverCode
    )
