"""Why a pod can or cannot go where it wants: one attempt, told as data that a program or a person can read."""

from dataclasses import asdict
from typing import Any

from volsched.core.cycle import Verdict, attempt
from volsched.core.profile import Profile
from volsched.core.snapshot import Snapshot
from volsched.core.status import Code
from volsched.model.workloads import Pod


def explain_pod(snapshot: Snapshot, pod: Pod, *, profile: Profile) -> dict[str, Any]:
    """The decision for the pod on this snapshot; nodes that are refused for the same reasons stand together."""
    made = attempt(snapshot, pod, profile=profile)
    return {
        "pod": pod.key,
        "profile": profile.name,
        "nodes": len(snapshot.nodes),
        "fits": made.status.code is Code.SUCCESS,
        "message": "; ".join(made.status.reasons),
        "bound": [{"claim": claim.key, "volume": claim.volume_name} for claim in made.claims.bound],
        "chosen": None if made.chosen is None else _placement(made.chosen),
        "runnersUp": [_placement(verdict) for verdict in made.runners_up],
        "refused": _groups([verdict for verdict in made.verdicts if not verdict.status.passed]),
    }


def _placement(verdict: Verdict) -> dict[str, Any]:
    return {
        "node": verdict.node,
        "score": verdict.score,
        "bindings": [
            {
                "claim": binding.claim.key,
                "volume": binding.volume.name,
                "requested": str(binding.claim.size),
                "capacity": str(binding.volume.size),
            }
            for binding in verdict.answer.bindings
        ],
        "provisions": [
            {
                "claim": provision.claim.key,
                "class": provision.claim.class_name,
                "requested": str(provision.claim.size),
                "capacityObject": None if provision.capacity is None else provision.capacity.key,
            }
            for provision in verdict.answer.provisions
        ],
    }


def _groups(refused: list[Verdict]) -> list[dict[str, Any]]:
    """The largest group first: it is most likely what the reader came for."""
    groups: dict[tuple[str, ...], list[Verdict]] = {}
    for verdict in refused:
        groups.setdefault(verdict.status.reasons, []).append(verdict)
    return [
        {
            "reasons": list(reasons),
            "nodes": [
                {
                    "node": verdict.node,
                    "rejections": [asdict(rejection) for rejection in verdict.status.rejections],
                }
                for verdict in verdicts
            ],
        }
        for reasons, verdicts in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    ]
