"""The outcome of a simulation as data that a program or a person can read."""

from typing import Any

from volsched.questions.explain.explain import placement
from volsched.questions.explain.remedies_scene import size_text
from volsched.questions.simulate.simulate import Placement, SimulationOutcome
from volsched.questions.simulate.stuck_pods import Holding, Stranded, short_of


def told(outcome: SimulationOutcome) -> dict[str, Any]:
    """Pods that waited before stand apart: what became of them is not the scenario's doing alone."""
    lacking = [it for it in outcome.stranded if it.pod not in outcome.waiting]
    return {
        "scenario": outcome.done,
        "evicted": [{"pod": pod, "from": node} for pod, node in sorted(outcome.evicted.items())],
        "placed": [_placed(it) for it in outcome.placed if it.pod not in outcome.waiting],
        "stranded": [_stranded(it) for it in lacking],
        "short": [
            {
                "class": it.class_name,
                "domain": it.domain,
                "why": it.why,
                "claims": it.claims,
                "bytes": it.size,
                "size": size_text(it.size),
            }
            for it in short_of(lacking)
        ],
        "stays": sorted(outcome.stays),
        "gone": sorted(outcome.gone),
        "waitedBefore": {
            "placed": [_placed(it) for it in outcome.placed if it.pod in outcome.waiting],
            "waiting": [_stranded(it) for it in outcome.stranded if it.pod in outcome.waiting],
        },
    }


def _placed(it: Placement) -> dict[str, Any]:
    where = placement(it.verdict)
    return {
        "pod": it.pod,
        "from": it.before or None,
        "to": it.verdict.node,
        "bindings": where["bindings"],
        "provisions": where["provisions"],
    }


def _stranded(it: Stranded) -> dict[str, Any]:
    return {
        "pod": it.pod,
        "from": it.before or None,
        "message": it.message,
        "claims": [_holding(held) for held in it.holding],
    }


def _holding(held: Holding) -> dict[str, Any]:
    return {
        "claim": held.claim,
        "class": held.class_name,
        "volume": held.volume,
        "domain": held.domain,
        "size": size_text(held.size),
        "why": held.why,
        "reachedFrom": list(held.reached_from),
    }
