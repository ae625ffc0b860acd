"""From a seed to a schedule: which cluster, who does what, and what goes wrong.

Every seed has a temper of its own: in one run processes crash all the time and nobody interferes, in another
workers sleep past their leases, in a third the storage fails. Runs that are all alike would find all the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from random import Random

from volsched.lab.simulation.process_lives import CALLS, CRASH, SLEEP
from volsched.lab.simulation.processes import OURS, THEIRS
from volsched.lab.simulation.schedule import Schedule, ScheduleChoice, Where

DEEDS = ("take", "give", "free", "touch", "use", "misuse", "misuse", "unmark", "cordon", "delete-pod",
         "create-pod", "delete-claim", "create-claim")  # fmt: skip
MISHAPS = ("exhausted", "refused", "raise", "too-small", "hang")
STEPS = {
    "local": {"scheduler-1": 6, "scheduler-2": 4, "controller-1": 6, "controller-2": 4, "worker-1": 12,
              "worker-2": 12, "sweep": 3, "provisioner": 3},
    "foreign": {"scheduler-1": 5, "scheduler-2": 4, "mirror-1": 6, "mirror-2": 2, "worker-1": 16, "worker-2": 14,
                "sweep": 3, "pv-controller": 6, "pv-provisioner": 3},
}  # fmt: skip
"""How often each is stepped out of turn, compared with the others; a worker that nobody woke costs nothing."""
COURSES = {
    "local": ("scheduler-1", "worker-1", "worker-2", "worker-1", "controller-1", "worker-2", "provisioner",
              "controller-1", "worker-1", "worker-2"),
    "foreign": ("mirror-1", "scheduler-1", "worker-1", "worker-2", "worker-1", "pv-provisioner", "pv-controller",
                "mirror-1", "worker-2", "worker-1", "worker-2"),
}  # fmt: skip
"""The order in which one's work gives work to the next: what runs for long without it runs idle."""
IN_TURN = 0.7
JUMPS = (-40_000, -1_000, 1_000, 40_000, 700_000, 7_200_000, -7_200_000, 31_536_000_000, -31_536_000_000)
"""Of a clock, in milliseconds: up to a year."""
MOST_PLACES = 8
"""A process crashes or sleeps at one of so many that it comes to next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Temper:
    """Chances, per choice or per step of a process."""

    crash: float = 0.08
    sleep: float = 0.06
    call: float = 0.25
    watch: float = 0.15
    bell: float = 0.05
    cut: float = 0.02
    skew: float = 0.02
    storage: float = 0.03
    others: float = 0.1
    wait: float = 0.1
    slow: float = 0.1
    """Of a provisioner's turn, that it passes and nothing is done."""
    misfit: float = 0.3
    """That there is a node without a zone: every rule accepts it, and the provisioner inside refuses it."""
    attached: float = 0.0
    """Of a cluster, that its volumes are disks of which every node can attach one."""
    length: int = 48
    where: tuple[Where, ...] = ("local", "foreign")


TEMPERS = (
    Temper(),
    Temper(crash=0.25, others=0.05),
    Temper(crash=0.02, sleep=0.2, others=0.06, wait=0.2),
    Temper(others=0.3, crash=0.03),
    Temper(call=0.4, watch=0.5, others=0.1),
    Temper(bell=0.2, cut=0.08, skew=0.1),
    Temper(storage=0.12, crash=0.12),
    Temper(slow=0.9, others=0.25),
)


def generate(seed: int, *, temper: Temper | None = None) -> Schedule:
    """The schedule of a seed; the same one for ever, as long as this module stays as it is."""
    rng = Random(f"volsched/{seed}")
    own = temper or rng.choice(TEMPERS)
    where = rng.choice(own.where)
    choices = [*_cluster(rng, where, own.attached), *_misfit(seed, where, own), *_course(rng, where, own)]
    return Schedule(where, tuple(choices), seed)


def _misfit(seed: int, where: Where, temper: Temper) -> Iterator[ScheduleChoice]:
    """With a pod that it may keep. Drawn apart: the cluster of a seed is else the same with it and without.

    Ties are settled by name, so its own comes before, among or after those of the others.
    """
    rng = Random(f"volsched/{seed}/misfit")
    if where == "local" and rng.random() < temper.misfit:
        yield ScheduleChoice("create", "misfit", {"name": rng.choice(("n0", "n1-misfit", "n2-misfit", "n4"))})
        yield ScheduleChoice("create", "claim", {"name": "c9a", "size": "1", "class": "inside"})
        name, seconds = f"p9{rng.randrange(100)}", str(rng.choice((3, 20, 600)))
        yield ScheduleChoice("create", "pod", {"name": name, "claims": "c9a", "seconds": seconds})


def _cluster(rng: Random, where: Where, attached: float) -> Iterator[ScheduleChoice]:
    limit = {"limit": "1"} if attached and rng.random() < attached else {}
    disk = {"disk": "1"} if limit else {}
    if where == "foreign" and rng.random() < 0.3:
        yield ScheduleChoice("plain")
    nodes = [f"n{number}" for number in range(1, rng.randint(2, 3) + 1)]
    classes = (
        ("local", "local", "local", "inside", "outside") if where == "local" else ("local", "local", "outside")
    )
    for name in dict.fromkeys(classes):
        slow = {"seconds": str(rng.choice((0, 2, 8)))} if name != "local" and where == "local" else {}
        room = {"room": "6"} if name == "inside" and rng.random() < 0.5 else {}
        yield ScheduleChoice("create", "class", {"name": name, **slow, **room})
    for place, name in enumerate(nodes):
        yield ScheduleChoice("create", "node", {"name": name, "zone": f"z{place % 2 + 1}", **limit})
    for number in range(1, rng.randint(2, 5) + 1):
        node, size = rng.choice(nodes), str(rng.randint(2, 6))
        yield ScheduleChoice("create", "volume", {"name": f"d{number}", "size": size, "node": node, **disk})
    for number in range(1, rng.randint(2, 3) + 1):
        claims = [f"c{number}{letter}" for letter in "abc"[: rng.choice((1, 1, 2, 2, 3))]]
        for name in claims:
            size = str(rng.randint(1, 4))
            yield ScheduleChoice("create", "claim", {"name": name, "size": size, "class": rng.choice(classes)})
        seconds = str(rng.choice((3, 20, 600)))
        yield ScheduleChoice(
            "create", "pod", {"name": f"p{number}", "claims": ",".join(claims), "seconds": seconds}
        )


def _course(rng: Random, where: Where, temper: Temper) -> Iterator[ScheduleChoice]:
    names, weights = list(STEPS[where]), list(STEPS[where].values())
    turns = cycle(COURSES[where])
    for _ in range(temper.length):
        drawn = rng.random()
        if drawn < temper.others:
            yield ScheduleChoice("someone", rng.choice(DEEDS), {"pick": str(rng.randrange(12))})
        elif drawn < temper.others + temper.wait:
            yield ScheduleChoice("wait", "", {"ms": str(rng.choice((50, 500, 1_500, 5_000, 31_000, 70_000)))})
        elif rng.random() < temper.bell + temper.cut + temper.skew + temper.storage:
            yield _trouble(rng, where, temper)
        else:
            who = next(turns) if rng.random() < IN_TURN else rng.choices(names, weights)[0]
            if "provisioner" not in who or rng.random() >= temper.slow:
                yield _step(rng, where, who, temper)


def _trouble(rng: Random, where: Where, temper: Temper) -> ScheduleChoice:
    kinds = {"bell": temper.bell, "cut": temper.cut, "skew": temper.skew, "storage": temper.storage}
    who = rng.choice(OURS[where])
    match rng.choices(list(kinds), list(kinds.values()))[0]:
        case "bell":
            return ScheduleChoice(rng.choice(("lose", "double")), "", {"pick": str(rng.randrange(4))})
        case "cut":
            return ScheduleChoice("cut", who, {"for": str(rng.randint(3, 12))})
        case "skew":
            crash = {"crash": str(_place(rng))} if rng.random() < 0.4 else {}
            return ScheduleChoice("skew", who, {"ms": str(rng.choice(JUMPS)), **crash})
        case _ if where == "local":
            return ScheduleChoice("storage", rng.choice(MISHAPS))
        case _:
            return ScheduleChoice("land")


def _step(rng: Random, where: Where, who: str, temper: Temper) -> ScheduleChoice:
    if who in THEIRS[where]:
        half = rng.choice(("", "", "first", "second"))
        return ScheduleChoice("step", who, {"half": half} if half else {})
    options = _fate(rng, where, who, temper)
    if who.startswith("worker"):
        options |= {"pick": str(rng.randrange(4))} if rng.random() < 0.5 else {}
        options |= {"batch": "1"} if rng.random() < 0.4 else {}
    if who.startswith("mirror") and rng.random() < temper.watch:
        options |= {"lag": "1"} if rng.random() < 0.6 else {rng.choice(("again", "coalesced", "expired")): "1"}
        options["pick"] = str(rng.randrange(9))
    return ScheduleChoice("step", who, options)


def _fate(rng: Random, where: Where, who: str, temper: Temper) -> dict[str, str]:
    drawn = rng.random()
    if drawn < temper.crash:
        return {CRASH: str(_place(rng))}
    if drawn < temper.crash + temper.sleep:
        return {SLEEP: str(_place(rng)), "for": str(rng.randint(2, 14))}
    if where == "foreign" and who.startswith("worker") and rng.random() < temper.call:
        return {rng.choice(CALLS): str(rng.randint(1, 3))}
    return {}


def _place(rng: Random) -> int:
    """Rather an early one: most steps come to two or three."""
    return min(rng.randint(1, MOST_PLACES), rng.randint(1, MOST_PLACES))
