"""What an object's surroundings forbid: namespaces that are not there, unknown priorities, claims that grow."""

import pytest

from volsched.kube.names import uid_of
from volsched.log.events.fold import ObjectState
from volsched.objects.rules.admission import (
    NoNamespaceError,
    TerminatingError,
    namespace_stream,
    refuse_expansion,
    refuse_namespace,
    refuse_priority,
)
from volsched.objects.rules.object_events import ForbiddenError

CLAIM = ObjectState(
    version=1,
    rv=1,
    manifest={"spec": {"resources": {"requests": {"storage": "2Gi"}}}, "status": {"phase": "Bound"}},
)


def grown(size: str) -> dict[str, object]:
    return {"spec": {"resources": {"requests": {"storage": size}}}}


def test_nothing_is_made_in_a_namespace_that_is_not_there_or_goes() -> None:
    with pytest.raises(NoNamespaceError, match='namespaces "shop" not found'):
        refuse_namespace("shop", {})
    going = ObjectState(version=1, rv=1, manifest={"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    with pytest.raises(TerminatingError, match="because it is being terminated"):
        refuse_namespace("shop", {namespace_stream("shop"): going})
    refuse_namespace("default", {})


def test_a_priority_is_that_of_a_class_that_is_there() -> None:
    with pytest.raises(ForbiddenError, match="no PriorityClass with name high was found"):
        refuse_priority("Pod", {"spec": {"priorityClassName": "high"}}, {})
    with pytest.raises(ForbiddenError, match=r"the integer value of priority \(7\) must not be provided"):
        refuse_priority("Pod", {"spec": {"priority": 7}}, {})
    refuse_priority("Pod", {"spec": {"priorityClassName": "system-node-critical"}}, {})


def test_a_claim_grows_nowhere_yet_and_says_why() -> None:
    with pytest.raises(ForbiddenError, match="must support resize"):
        refuse_expansion(CLAIM, grown("3Gi"), None)
    with pytest.raises(ForbiddenError, match="not supported yet"):
        refuse_expansion(CLAIM, grown("3Gi"), {"allowVolumeExpansion": True})
    refuse_expansion(CLAIM, grown("2048Mi"), None)


def test_a_uid_follows_from_an_id_and_looks_like_any_other() -> None:
    assert uid_of("test-0001") == uid_of("test-0001") != uid_of("test-0002")
    assert uid_of("test-0001")[14] == "4"
