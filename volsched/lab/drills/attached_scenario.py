"""Parses the `with` of a scenario of kind `attached`: the pods of each step, the steps, and how long to wait.

```yaml
name: attached-line
kind: attached
about: the connection to the cluster breaks while pods are bound
with:
  load: {pods: 3, claims: [1, 2, 3], nodes: 3}
  faults: [cut 2, restart server, misbehave lost-answer 3]
  patience: 90
```
"""

from dataclasses import dataclass
from typing import Any

from volsched.lab.drills.scenario import DrillScenario, ScenarioError
from volsched.lab.faults import ATTACHED_STEPS
from volsched.runtime.fault_points import POINTS

MOST_PODS, MOST_CLAIMS, MOST_NODES, MOST_NUMBER = 200, 10, 50, 600
POINTS_OF_OTHERS = ("controller.decided", "controller.written")
"""Fault points of our own PV controller, which a foreign cluster does not need."""


@dataclass(frozen=True, slots=True)
class AttachedStep:
    verb: str
    target: str = ""
    """A fault point with its count (`executor.calling*2`), a fault of the server, or a variant."""
    number: int = 0
    """The seconds or the count of the step."""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verb, self.target, str(self.number) if self.number else "")))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedPlay:
    name: str
    about: str = ""
    pods: int = 3
    """Pods that each step creates."""
    claims: tuple[int, ...] = (1, 2, 3)
    """How many claims a pod has, in turn; the last of several is provisioned."""
    nodes: int = 3
    faults: tuple[AttachedStep, ...]
    patience: float = 120.0
    """Seconds without any change in the cluster, after which unsettled pods count as lost."""


def attached_play(scenario: DrillScenario) -> AttachedPlay:
    """Raises ScenarioError, which names the field and its valid values."""
    given = dict(scenario.settings)
    _check_names("with", given, ("load", "faults", "patience"))
    load = given.get("load", {})
    if not isinstance(load, dict):
        raise ScenarioError("with.load: it must be a mapping of pods, claims, nodes")
    _check_names("with.load", load, ("pods", "claims", "nodes"))
    claims = load.get("claims", [1, 2, 3])
    claims = [claims] if isinstance(claims, int) else claims
    if not isinstance(claims, list) or not claims:
        raise ScenarioError("with.load.claims: it must be a number, or a list of them")
    faults = given.get("faults")
    if not isinstance(faults, list) or not faults:
        raise ScenarioError("with.faults: it must be a list of steps, such as [kill executor.called]")
    return AttachedPlay(
        name=scenario.name,
        about=scenario.about,
        pods=_whole("with.load.pods", load.get("pods", 3), MOST_PODS),
        claims=tuple(_whole("with.load.claims", it, MOST_CLAIMS) for it in claims),
        nodes=_whole("with.load.nodes", load.get("nodes", 3), MOST_NODES),
        faults=tuple(read_attached_step(str(it)) for it in faults),
        patience=_whole("with.patience", given.get("patience", 120), 3_600),
    )


def read_attached_step(text: str) -> AttachedStep:
    verb, *words = text.split() or [""]
    fault = ATTACHED_STEPS.get(verb)
    if fault is None:
        raise ScenarioError(f'with.faults: "{text}" is no step; there are {", ".join(ATTACHED_STEPS)}')
    where = f'with.faults: "{text}"'
    if len(words) != len(fault.arguments.split()):
        raise ScenarioError(f"{where}: write {fault.usage}")
    if verb in ("kill", "undo", "sleep"):
        return AttachedStep(verb, _point(where, words[0]))
    if not fault.targets:
        return AttachedStep(verb, number=_whole(where, words[0], MOST_NUMBER))
    if words[0] not in fault.targets:
        raise ScenarioError(f"{where}: {verb} is for one of {', '.join(fault.targets)}")
    return AttachedStep(verb, words[0], *(_whole(where, it, MOST_NUMBER) for it in words[1:]))


def _point(where: str, place: str) -> str:
    point, star, times = place.partition("*")
    reached = sorted(POINTS.keys() - set(POINTS_OF_OTHERS))
    if point not in reached:
        raise ScenarioError(f"{where}: there is no place {point}; there are {', '.join(reached)}")
    if star and (not times.isdecimal() or int(times) < 1):
        raise ScenarioError(f"{where}: write {point}*N, with a number from 1 on")
    return place


def _check_names(where: str, given: dict[str, Any], known: tuple[str, ...]) -> None:
    if unknown := sorted(str(it) for it in given.keys() - set(known)):
        raise ScenarioError(f"{where}.{unknown[0]} is unknown; there are {', '.join(known)}")


def _whole(where: str, given: Any, most: int) -> int:
    number = int(given) if isinstance(given, int) or str(given).isdecimal() else 0
    if isinstance(given, bool) or not 1 <= number <= most:
        raise ScenarioError(f"{where}: it must be a whole number from 1 to {most}")
    return number
