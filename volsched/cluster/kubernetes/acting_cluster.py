"""The real cluster that a mode acts on, created in the same way for the attached process and for its workers."""

from dataclasses import replace
from pathlib import Path

from volsched.cluster.kubernetes.adapter import KubernetesCluster, connect
from volsched.cluster.kubernetes.backoff import TokenBucket
from volsched.cluster.permissions import GATE_MODE, WATCHED_KINDS
from volsched.cluster.port import KUBERNETES
from volsched.cluster.projection import project

PER_SECOND, BURST = 200, 400
"""Our own rate limit of a process; a pod with one claim takes three requests."""


def acting_cluster(mode: str, kubeconfig: Path | None, context: str | None) -> KubernetesCluster:
    """The cluster of a mode; raises KubeconfigError. Nothing is sent yet."""
    return connect(
        kubeconfig,
        context,
        mode=mode,
        kinds=WATCHED_KINDS,
        project=project,
        bucket=TokenBucket(PER_SECOND, BURST),
        capabilities=replace(KUBERNETES, places_pods=mode != GATE_MODE),
    )
