"""A scheduler of your own on volsched's rules: no store, no cluster, only functions over values.

    python docs/examples/custom_scheduler.py docs/examples/three-zones.yaml

Four steps for each pod, each a pure function of `volsched.core`:

find     `prefilter` says once what the pod's claims need, `find_pod_volumes` what one node has for them
score    `node_score` says how well a node's volumes fit; what you make of that is your policy
assume   `assume_pod_volumes` answers a new snapshot in which the volumes are taken, for the pods that follow
bind     what was assumed is what must be written: volumes with a claimRef, claims with a selected node

The rules of volume binding alone are applied here; `volsched.core.attempt` judges taints, affinity, resources and
zone labels too, and answers as `volsched explain pod NAME -f` does. What controllers do before (claims that name
their volume) and what a log remembers (room that was promised to another pod) is in the system only.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from volsched.core import (
    VOLSCHED,
    Reservation,
    Snapshot,
    assume_pod_volumes,
    find_pod_volumes,
    node_score,
    prefilter,
    snapshot_of,
)
from volsched.model import load_manifests


def schedule(snapshot: Snapshot) -> Iterator[tuple[str, str | None, Reservation]]:
    """Pod, node and what is to be written for it; no node where nothing fits."""
    for key, pod in sorted(snapshot.pods.items()):
        status, claims = prefilter(snapshot, pod, profile=VOLSCHED)
        found = {
            name: find_pod_volumes(snapshot, pod, claims, node, profile=VOLSCHED)
            for name, node in sorted(snapshot.nodes.items())
            if status.passed and not pod.node_name
        }
        fitting = {name: answer for name, answer in found.items() if answer.fits}
        if not fitting:
            yield key, None, Reservation()
            continue
        # Your policy stands in this line: here, the tightest fit, and of equal ones the first by name.
        chosen = max(fitting, key=lambda name: node_score(fitting[name], profile=VOLSCHED))
        snapshot, reserved = assume_pod_volumes(
            snapshot, pod, snapshot.nodes[chosen], fitting[chosen], profile=VOLSCHED
        )
        yield key, chosen, reserved


def bind(reserved: Reservation) -> Iterator[str]:
    """What a client of the cluster would write, in order; then the pod gets its node."""
    for assumed in reserved.volumes:
        if assumed.changed:
            yield f"PersistentVolume {assumed.volume.name}: claimRef {assumed.claim.key}"
    for claim in reserved.claims:
        yield f"PersistentVolumeClaim {claim.key}: selected-node annotation"


def main(path: str) -> None:
    loaded = load_manifests(Path(path).read_bytes(), source=path)
    for pod, node, reserved in schedule(snapshot_of(entry.value for entry in loaded)):
        print(f"{pod} → {node or 'nowhere'}")
        for write in bind(reserved):
            print(f"  {write}")


if __name__ == "__main__":
    main(sys.argv[1])
