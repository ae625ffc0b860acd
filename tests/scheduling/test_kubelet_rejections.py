"""Row P2 of the safe table: which pods were rejected by a kubelet, and so which nodes are avoided."""

from typing import Any

import pytest

from volsched.scheduling.rules.failure_memory import rejected_by_kubelet

AT = "2026-11-18T06:00:00Z"


def pod(phase: str, reason: str | None, node: str | None = "n1") -> dict[str, Any]:
    placed = {} if node is None else {"nodeName": node}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": AT}
    return {"spec": placed, "status": {"phase": phase, "reason": reason, "conditions": [scheduled]}}


@pytest.mark.parametrize(
    ("held", "found"),
    [
        (pod("Failed", "OutOfcpu"), ("n1", AT)),
        (pod("Failed", "OutOfexample.com/gpu"), ("n1", AT)),
        (pod("Failed", "NodeAffinity"), ("n1", AT)),
        (pod("Failed", "UnexpectedAdmissionError"), ("n1", AT)),
        (pod("Failed", "Evicted"), None),
        (pod("Failed", "NodeShutdown"), None),
        (pod("Failed", None), None),
        (pod("Failed", "OutOfcpu", None), None),
        (pod("Running", "OutOfcpu"), None),
        ({"spec": {"nodeName": "n1"}, "status": {"phase": "Failed", "reason": "OutOfpods"}}, ("n1", "")),
        ({}, None),
    ],
)
def test_a_pod_that_its_kubelet_refused_names_the_node(
    held: dict[str, Any], found: tuple[str, str] | None
) -> None:
    assert rejected_by_kubelet(held) == found
