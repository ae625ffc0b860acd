"""Parses the `with` of a scenario of kind `stack`: a load, a moment, the faults, and how long to wait.

```yaml
name: kill-worker
kind: stack
about: a worker is killed with claimed work
with:
  engines: [stack, sqlite]
  scale: {worker: 2}
  load: {pods: 60, per_second: 60, claims: [1, 2, 3]}
  moment: worker at executor.claimed
  faults: [kill worker]
  patience: 90
```

A moment is `SERVICE at PLACE` (a process of the service has come to this fault point, and is held there),
`NN% bound` (of the pods), `partly bound` (some legs of a binding are bound, others are not), `random` (some share
of the pods, chosen by the seed) or `at once`.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from volsched.lab.drills.scenario import DrillScenario, ScenarioError, some_of
from volsched.lab.faults import ENGINES, SERVICES, STEPS
from volsched.runtime.fault_points import POINTS

MOST_PODS = 5_000


@dataclass(frozen=True, slots=True)
class Step:
    """One action on the system: `kill worker-1`, `wait 3`, `skew scheduler -60`."""

    verb: str
    target: str = ""
    seconds: float = 0

    def __str__(self) -> str:
        number = f"{self.seconds:g}" if STEPS[self.verb].timed else ""
        return " ".join(word for word in (self.verb, self.target, number) if word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    service: str | None = None
    point: str | None = None
    """The fault point at which a process of the service is held."""
    bound: float | None = None
    """The share of the pods that is bound."""
    partly: bool = False
    drawn: bool = False
    """Drawn from the seed."""

    def settled(self, seed: int) -> "Moment":
        """The moment with its random choices made."""
        return Moment(bound=round(random.Random(seed).uniform(0.02, 0.8), 3)) if self.drawn else self

    def __str__(self) -> str:
        if self.point is not None:
            return f"{self.service} at {self.point}"
        if self.bound is not None:
            return f"{100 * self.bound:g}% bound"
        return "partly bound" if self.partly else "random" if self.drawn else "at once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The load on the system."""

    pods: int = 60
    per_second: float = 60
    claims: tuple[int, ...] = (1, 2, 3)
    nodes: int = 4
    stuck: int = 0
    """Additional pods of which one claim is never provisioned; the last step deletes them."""
    slow: int = 0
    """Pods among them of which a claim takes seconds to be provisioned, so that some binding is always open."""
    timeout: int | None = None
    """Seconds that a binding may take; default: the scheduler's."""
    withheld: bool = False
    """A step creates the nodes later: until then every pod waits."""

    @property
    def all(self) -> int:
        """Pods that must have a node in the end."""
        return self.pods + self.slow

    @property
    def volumes(self) -> int:
        """Volumes: enough on every node, however pods are spread."""
        quick = sum(self.claims[it % len(self.claims)] for it in range(self.pods))
        return self.nodes * (quick + self.slow + 2 * self.stuck)


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A drill with real processes."""

    name: str
    about: str = ""
    work: Work = field(default_factory=Work)
    moment: Moment = field(default_factory=lambda: Moment(drawn=True))
    faults: tuple[Step, ...]
    engines: tuple[str, ...] = ENGINES
    scale: Mapping[str, int] = field(default_factory=dict)
    patience: float = 180.0
    """Seconds from the fault until everything must have settled."""
    lease: float = 2.0
    """Seconds for which work is claimed: shorter than in production, to shorten a drill with a paused process."""


def play_of(scenario: DrillScenario) -> Play:
    """Raises ScenarioError, which names the field and its valid values."""
    given = dict(scenario.settings)
    known = ("engines", "scale", "load", "moment", "faults", "patience", "lease")
    if unknown := sorted(str(it) for it in given.keys() - set(known)):
        raise ScenarioError(f"with.{unknown[0]} is unknown; there are {', '.join(known)}")
    engines = some_of(ENGINES, given.get("engines", list(ENGINES)), "with.engines")
    faults = given.get("faults")
    if not isinstance(faults, list) or not faults:
        raise ScenarioError("with.faults: it must be a list of steps, such as [kill worker]")
    scale = given.get("scale", {})
    if not isinstance(scale, dict) or not all(
        key in SERVICES and isinstance(count, int) and 1 <= count <= 16 for key, count in scale.items()
    ):
        raise ScenarioError("with.scale: it must be services and how many of them, such as {worker: 2}")
    steps = tuple(read_step(str(it)) for it in faults)
    for step in steps:
        _check_number(step, scale)
    return Play(
        name=scenario.name,
        about=scenario.about,
        work=_work(given.get("load", {})),
        moment=read_moment(str(given.get("moment", "random"))),
        faults=steps,
        engines=engines,
        scale=scale,
        patience=_number("with.patience", given.get("patience", 180), least=1, most=3_600),
        lease=_number("with.lease", given.get("lease", 2), least=1, most=3_600),
    )


def _check_number(step: Step, scale: Mapping[str, int]) -> None:
    """An instance that never starts would be noticed only after the drill has run for a while."""
    service, _, number = step.target.partition("-")
    count = scale.get(service, 1)
    if number and not 1 <= int(number) <= count:
        raise ScenarioError(
            f'with.faults: "{step}": there is {service}-1{f" to {service}-{count}" if count > 1 else " alone"}; '
            f"with.scale says how many"
        )


def read_step(text: str) -> Step:
    words = text.split()
    fault = STEPS.get(words[0]) if words else None
    if fault is None:
        raise ScenarioError(f'with.faults: "{text}" is no step; there are {", ".join(STEPS)}')
    targets, timed = fault.targets, fault.timed
    target = words[1] if targets and len(words) > 1 else ""
    service, dash, number = target.partition("-")
    if targets and (service not in targets or (dash and (not number.isdecimal() or service == "all"))):
        raise ScenarioError(f'with.faults: "{text}": {words[0]} is for one of {", ".join(targets)}')
    rest = words[1 + bool(targets) :]
    if len(rest) != int(timed):
        raise ScenarioError(
            f'with.faults: "{text}": write {words[0]} {"NAME" if targets else ""}{" SECONDS" * timed}'
        )
    seconds = _number(f'with.faults: "{text}"', rest[0], least=-86_400, most=86_400) if timed else 0
    if words[0] == "wait" and seconds < 0:
        raise ScenarioError(f'with.faults: "{text}": a wait lasts 0 seconds or longer')
    return Step(words[0], target, seconds)


def read_moment(text: str) -> Moment:
    words = text.split()
    match words:
        case ["at", "once"]:
            return Moment()
        case ["random"]:
            return Moment(drawn=True)
        case ["partly", "bound"]:
            return Moment(partly=True)
        case [share, "bound"] if share.endswith("%"):
            return Moment(bound=_number("with.moment", share[:-1], least=0, most=100) / 100)
        case [service, "at", place] if service in ("scheduler", "controller", "worker"):
            point, star, times = place.partition("*")
            if point not in POINTS:
                raise ScenarioError(
                    f"with.moment: there is no place {point}; there are {', '.join(sorted(POINTS))}"
                )
            if star and (not times.isdecimal() or int(times) < 1):
                raise ScenarioError(f'with.moment: "{text}": write {point}*N, with a number from 1 on')
            return Moment(service=service, point=place)
    raise ScenarioError(
        f'with.moment: "{text}" is none; write random, at once, 30% bound, partly bound, '
        f"or worker at executor.claimed"
    )


def _work(given: object) -> Work:
    known = [it.name for it in fields(Work)]
    if not isinstance(given, dict):
        raise ScenarioError(f"with.load: it must be a mapping of {', '.join(known)}")
    if unknown := sorted(str(it) for it in given.keys() - set(known)):
        raise ScenarioError(f"with.load.{unknown[0]} is unknown; there are {', '.join(known)}")
    claims = given.get("claims", [1, 2, 3])
    claims = [claims] if isinstance(claims, int) else claims
    if not isinstance(claims, list) or not claims or not all(it in range(1, 11) for it in claims):
        raise ScenarioError("with.load.claims: it must be a number from 1 to 10, or a list of them")
    timeout = given.get("timeout")

    def whole(name: str, usual: int, least: int) -> int:
        return int(_number(f"with.load.{name}", given.get(name, usual), least=least, most=MOST_PODS))

    return Work(
        pods=whole("pods", 60, 1),
        per_second=_number("with.load.per_second", given.get("per_second", 60), least=0.1, most=1e6),
        claims=tuple(claims),
        nodes=whole("nodes", 4, 1),
        stuck=whole("stuck", 0, 0),
        slow=whole("slow", 0, 0),
        timeout=None if timeout is None else whole("timeout", 0, 1),
        withheld=given.get("withheld", False) is True,
    )


def _number(where: str, given: Any, *, least: float, most: float) -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = least - 1
    if isinstance(given, bool) or not least <= number <= most:
        raise ScenarioError(f"{where}: it must be a number from {least:g} to {most:g}")
    return number
