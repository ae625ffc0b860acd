"""What belongs to a node: the pods that are bound to it, and the claims that these use."""

from collections.abc import Mapping

from volsched.api.access.request_attributes import RequestAttributes
from volsched.api.kubernetes.field_selectors import parse_field_selector
from volsched.api.kubernetes.resources import resource_at
from volsched.kube.kinds import KINDS
from volsched.kube.workloads import Pod
from volsched.log.database import Database
from volsched.log.reads.lookups import node_of_pod, pods_on
from volsched.scheduling.rules.pod_claims import claim_uses


def selects_own(query: Mapping[str, str], node: str) -> bool:
    """Does a list or watch of pods ask for those of the node alone?"""
    pods = resource_at("", "v1", "pods")
    assert pods is not None
    terms = parse_field_selector(query.get("fieldSelector", ""), pods)
    return any((it.field, it.equal, it.value) == ("spec.nodeName", True, node) for it in terms)


def is_own(database: Database, asked: RequestAttributes, node: str) -> bool:
    """Is the pod bound to the node, or the claim used by one that is? What is not there belongs to nobody."""
    with database.read() as connection:
        if asked.resource == "pods":
            return node_of_pod(connection, f"{asked.namespace}/{asked.name}") == node
        if asked.resource != "persistentvolumeclaims":
            return False
        pods = map(KINDS["Pod"].read, pods_on(connection, node, namespace=str(asked.namespace)))
        return any(use.name == asked.name for pod in pods if isinstance(pod, Pod) for use in claim_uses(pod))
