"""Fault points are armed by the environment, several at once, and never without the drill flag."""

import pytest

from volsched.runtime.fault_points import ArmingError, FaultError, arm_from, reach

pytestmark = pytest.mark.usefixtures("disarmed")


def test_each_of_several_faults_happens_at_its_own_place() -> None:
    arm_from({"VOLSCHED_DRILL": "1", "VOLSCHED_FAULT": "executor.claimed:raise,executor.called*2:raise"})
    reach("executor.called")
    with pytest.raises(FaultError):
        reach("executor.claimed")
    reach("executor.claimed")
    with pytest.raises(FaultError):
        reach("executor.called")


@pytest.mark.parametrize(
    ("fault", "flag", "said"),
    [
        ("executor.claimed:kill", "", "set VOLSCHED_DRILL=1"),
        ("nowhere:kill", "1", "there is no place nowhere"),
        ("executor.claimed:kill,executor.called", "1", "executor.called: write PLACE"),
    ],
)
def test_what_cannot_be_armed_is_refused_as_a_whole(fault: str, flag: str, said: str) -> None:
    with pytest.raises(ArmingError, match=said):
        arm_from({"VOLSCHED_DRILL": flag, "VOLSCHED_FAULT": fault})
    reach("executor.claimed")
