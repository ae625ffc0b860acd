"""What to know about a cluster that was taken over: what it lacks, said before somebody wonders."""

from collections.abc import Iterator, Sequence

from volsched.kube.manifest import claim_is_bound
from volsched.kube.manifest_reader import Loaded
from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Node, Pod

SOME = 3


def adoption_warnings(loaded: Sequence[Loaded]) -> Iterator[str]:
    values = [entry.value for entry in loaded]
    volumes = {it.name for it in values if isinstance(it, Volume)}
    nodes = {it.name for it in values if isinstance(it, Node)}
    lost = [
        entry.key
        for entry in loaded
        if isinstance(entry.value, Claim)
        and claim_is_bound(entry.manifest)
        and entry.value.volume_name not in volumes
    ]
    if lost:
        yield f"{_some(lost)} bound to volumes that are not in the dump, and will be Lost; add: kubectl get pv"
    homeless = [it.key for it in values if isinstance(it, Pod) and it.node_name and it.node_name not in nodes]
    if homeless:
        yield f"{_some(homeless)} on nodes that are not in the dump; add: kubectl get nodes"


def _some(keys: list[str]) -> str:
    more = f" and {len(keys) - SOME} more" if len(keys) > SOME else ""
    return f"{', '.join(keys[:SOME])}{more} {'are' if len(keys) > 1 else 'is'}"
