"""Every fault that a drill can inject, declared once: its effect, its targets, its engines and its injector.

There are four ways to inject faults, because they break different things: the simulation draws faults by chance,
a drill with processes takes them as steps, so does a drill on a foreign cluster with steps of its own, and a fault
point stops a process at an exact line. Grammar of scenarios, chances, `volsched drill list --faults` and
`docs/drill-faults.md` are generated from this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from volsched.api.strict.faults import ServerFault
from volsched.lab.simulation.schedule import PLACES
from volsched.runtime.fault_points import POINTS

ON_STACK, ON_SQLITE = ENGINES = ("stack", "sqlite")
"""PostgreSQL, Redis and Celery; or API, scheduler and controller on one SQLite file, without separate workers."""
ON_ATTACHED = "attached"
"""`volsched attach` on a strict API server of its own, with players of its controllers."""
LOCAL, FOREIGN = PLACES
SERVICES = ("api", "scheduler", "controller", "worker", "redis", "postgres", "all")


class FaultWay(StrEnum):
    CHANCE = "chance"
    """Drawn by the simulation, per choice or per step of a process."""
    STEP = "step"
    """Injected into the real processes of a drill."""
    ATTACHED = "attached"
    """Injected into a foreign cluster and the process that is attached to it."""
    POINT = "point"
    """At a named place in the program, where `VOLSCHED_FAULT` makes a process be killed, fail or stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillFault:
    name: str
    way: FaultWay
    about: str
    """What it does, for users."""
    on: tuple[str, ...]
    """Engines of a step or a point, places (`local`: our own log, `foreign`: another cluster) of a chance."""
    injector: str
    """The module that injects it, below `volsched/`."""
    usual: float = 0
    """The default probability of a chance."""
    variants: tuple[str, ...] = ()
    """The variants of a chance to draw from; one that is listed twice is drawn twice as often."""
    targets: tuple[str, ...] = ()
    """The possible targets of a step."""
    timed: bool = False
    """A number of seconds follows."""
    disturbs: bool = False
    """Whether bindings in flight at this step count as hit."""
    kills: bool = False
    arguments: str = ""
    """The arguments of a step on a foreign cluster, as its usage shows them."""

    @property
    def usage(self) -> str:
        """The syntax in a scenario."""
        match self.way:
            case FaultWay.CHANCE:
                return f"{self.name}: {self.usual:g}"
            case FaultWay.POINT:
                return self.name
            case FaultWay.ATTACHED:
                return f"{self.name} {self.arguments}"
        target = "SERVICE" if self.targets == SERVICES else "|".join(self.targets)
        return " ".join(word for word in (self.name, target, "SECONDS" if self.timed else "") if word)


def _chance(
    name: str, usual: float, about: str, *, by: str, on: tuple[str, ...] = PLACES, variants: tuple[str, ...] = ()
) -> DrillFault:
    injector = f"lab/simulation/{by}.py"
    return DrillFault(
        name=name, way=FaultWay.CHANCE, about=about, on=on, injector=injector, usual=usual, variants=variants
    )


def _step(
    name: str,
    about: str,
    *targets: str,
    on: tuple[str, ...] = ENGINES,
    timed: bool = False,
    disturbs: bool = False,
    kills: bool = False,
) -> DrillFault:
    injector = "lab/drills/process_faults.py"
    return DrillFault(
        name=name, way=FaultWay.STEP, about=about, on=on, injector=injector, targets=targets, timed=timed,
        disturbs=disturbs, kills=kills,
    )  # fmt: skip


def _attached(name: str, arguments: str, about: str, *targets: str) -> DrillFault:
    return DrillFault(
        name=name, way=FaultWay.ATTACHED, about=about, on=(ON_ATTACHED,), arguments=arguments, targets=targets,
        injector="lab/drills/attached_drill.py",
    )  # fmt: skip


FAULTS: tuple[DrillFault, ...] = (
    _chance("crash", 0.08, "a process crashes at one of the next fault points it reaches", by="process_lives"),
    _chance("sleep", 0.06, "a process sleeps at such a point past its lease while others go on",
            by="process_lives"),
    _chance("call", 0.25,
            "a call is lost after it was carried out, fails, arrives much later, is refused or turned away (429)",
            by="process_lives", on=(FOREIGN,), variants=("lost", "failed", "slow", "conflict", "limited")),
    _chance("watch", 0.15,
            "a watch is late, repeats, skips changes, expires, or is silent about one kind; a list breaks off",
            by="process_lives", on=(FOREIGN,),
            variants=("lag", "again", "coalesced", "expired", "silent", "torn")),
    _chance("bell", 0.05, "a wake-up is lost or comes twice", by="simulation", variants=("lose", "double")),
    _chance("cut", 0.02, "a process reaches neither store nor cluster for a while", by="process_lives"),
    _chance("skew", 0.02, "the clock of a process jumps by up to a year, also just before a crash",
            by="process_lives"),
    _chance("storage", 0.03, "storage has no room, refuses, raises, delivers too little, hangs; late calls arrive",
            by="simulation", variants=("exhausted", "refused", "raise", "too-small", "hang")),
    _chance("others", 0.1, "users and administrators take, give and free volumes, change pods, claims and nodes",
            by="actors", variants=("take", "give", "free", "touch", "use", "misuse", "misuse", "unmark", "cordon",
                                   "delete-pod", "create-pod", "delete-claim", "create-claim")),
    _chance("wait", 0.1, "time passes and no process takes a step", by="simulation"),
    _chance("slow", 0.1, "a provisioner skips its turn", by="seeds"),
    _chance("misfit", 0.3, "a node without a zone, which every rule accepts and the provisioner inside refuses",
            by="seeds", on=(LOCAL,)),
    _chance("attached", 0.0, "volumes are disks of which a node attaches one", by="seeds"),
    _step("kill", "SIGKILL to all processes of a service; the supervisor starts them again", *SERVICES,
          disturbs=True, kills=True),
    _step("pause", "SIGSTOP: a process stops running and keeps its connections", *SERVICES, disturbs=True),
    _step("resume", "SIGCONT after a pause", *SERVICES),
    _step("stop", "a graceful stop, without a restart", *SERVICES, disturbs=True),
    _step("start", "a stopped service is started", *SERVICES),
    _step("restart", "a rolling, graceful restart, one instance after the other", *SERVICES, disturbs=True),
    _step("skew", "restarted with a clock that is wrong by so many seconds", *SERVICES, timed=True,
          disturbs=True),
    _step("crash", "killed, and restarted with the right clock", *SERVICES, disturbs=True, kills=True),
    _step("flush", "all messages are lost", "redis", on=(ON_STACK,)),
    _step("wait", "the load goes on", timed=True),
    _step("poison", "a queued effect names a leg that does not exist, with one attempt left", "effect"),
    _step("fill", "files of the database cannot grow", "disk", disturbs=True),
    _step("free", "files of the database can grow again", "disk"),
    _step("give", "nodes that were withheld are created", "nodes"),
    _step("send", "a heavy request; others must be answered within so many seconds meanwhile", "patch", "yaml",
          timed=True),
    _step("delete", "pods that can never be bound are deleted", "stuck", disturbs=True),
    _step("steal", "of every other binding in flight, a volume that is not written yet goes to another claim",
          "volumes", disturbs=True),
    _attached("kill", "POINT[*N]", "pods are created, and the attached process is killed at this fault point"),
    _attached("undo", "POINT[*N]", "pods are deleted half bound, and the process that undoes the "
              "binding is killed at this point"),
    _attached("cut", "SECONDS", "the connection to the API server breaks half way through bindings, for so long"),
    _attached("restart", "server", "the API server is killed half way through bindings, and started again",
              "server"),
    _attached("misbehave", "FAULT N", "the next N answers to us are those of a bad network or a lagging replica",
              *ServerFault),
    _attached("rival", "N", "another scheduler takes N volumes of the same class while ours binds"),
    _attached("steal", "written|bound", "a pod's second volume is given to another claim, while its first is only "
              "written, or is bound already", "written", "bound"),
    _attached("restore", "early|late", "the store is replaced by a backup, written before or after volumes "
              "were written; a pod and its claim were deleted since, and the replaced process wakes up later",
              "early", "late"),
    _attached("sleep", "POINT[*N]", "the attached process is stopped at this fault point until another one of "
              "its store has done its work, and then continues"),
    *(
        DrillFault(name=name, way=FaultWay.POINT, about=about, on=ENGINES, injector="runtime/fault_points.py")
        for name, about in POINTS.items()
    ),
)  # fmt: skip


def _by_name(way: FaultWay) -> Mapping[str, DrillFault]:
    return {it.name: it for it in FAULTS if it.way is way}


CHANCES = _by_name(FaultWay.CHANCE)
STEPS = _by_name(FaultWay.STEP)
ATTACHED_STEPS = _by_name(FaultWay.ATTACHED)
