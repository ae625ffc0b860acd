"""Which requests an ordered fault concerns, and what an order may say."""

from typing import Any

import pytest

from volsched.api.strict.faults import (
    GET,
    WRITE,
    ArmedFaults,
    FaultRequestError,
    RequestShape,
    fault_order,
    read_fault,
)


def test_a_fault_for_one_client_spares_all_others() -> None:
    faults = ArmedFaults([read_fault({"fault": "lost-answer", "client": "volsched", "times": 1})])
    assert faults.take(RequestShape(WRITE, "pods", client="kubectl/1.37")) is None
    assert faults.take(RequestShape(GET, "pods", client="volsched/0.1.0 (own)")) is None
    assert faults.take(RequestShape(WRITE, "pods", client="volsched/0.1.0 (own)")) is not None
    assert faults.armed == []


@pytest.mark.parametrize("given", [{}, {"client": "volsched"}, {"resource": "nodes"}])
def test_an_order_is_shown_as_it_was_given(given: dict[str, Any]) -> None:
    order = {"fault": "slow-watch", "times": 2, "seconds": 0.5, **given}
    assert fault_order(read_fault(order)) == order


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fault": "earthquake"}, "fault must be one of"),
        ({"fault": "cut-watch", "times": 0}, "times must be"),
        ({"fault": "cut-watch", "seconds": -1}, "seconds must be"),
        ({"fault": "cut-watch", "resource": 1}, "resource must be"),
        ({"fault": "cut-watch", "client": 1}, "client must be"),
    ],
)
def test_an_order_that_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(FaultRequestError, match=said):
        read_fault(given)
