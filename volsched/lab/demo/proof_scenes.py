"""Scenes of proof: the history of the transaction that was undone, and whether all of it is true."""

from collections.abc import Iterator

from volsched.lab.demo.failure_scenes import QUEUE_POD, SOMEBODY, STOLEN
from volsched.lab.demo.objects import SHOP
from volsched.lab.demo.stage import Rows, SceneError, Stage, Told, check
from volsched.log.events.streams import BINDING
from volsched.log.integrity.verify import verify
from volsched.log.reads.event_audit import EVERYTHING
from volsched.questions.audit.answers import Item
from volsched.questions.history.history import changes, of_binding
from volsched.questions.invariants import violations

PAGE = 100
CLOCK = slice(len("2025-11-16T"), len("2025-11-16T22:00:00.123"))
TELLING = frozenset({"BindingPlanned", "BindingMoved", "LegMoved", "VolumeChanged", "ClaimChanged"})

LEFT_OUT = ("annotation ", "pv.kubernetes.io/", "volsched.io/", f"{SHOP}/")


def audited(stage: Stage) -> Iterator[Told]:
    stage.last_binding(QUEUE_POD, of=2)
    binding, state = stage.bindings_of(QUEUE_POD)[0]
    with stage.database.read() as connection:
        items = of_binding(connection, binding, EVERYTHING, after=None, limit=PAGE).items
        written = changes(connection, f"volume/{STOLEN}", EVERYTHING, after=None, limit=PAGE).items
    steps = [it["what"] for it in items if it["type"] == "BindingMoved"]
    check(steps == ["binding compensating", f"binding {state.state}"], f"the history says {steps}")
    told = [it for it in items if it["type"] in TELLING]
    yield f"{len(told)} of the {len(items)} events of binding {binding}:"
    yield Rows(("position", "at", "who", "object", "what"), [_row(it) for it in told])
    theft = next((it for it in written if it["who"] == SOMEBODY), None)
    if theft is None:
        raise SceneError(f"the history of {STOLEN} does not say who took it")
    yield f"{STOLEN} was taken at position {theft['position']} by {theft['who']}, who said: {theft['reason']}"


def _row(it: Item) -> tuple[str, ...]:
    """An event in one short line; `volsched history` has all of it."""
    what, about = it["what"], it["object"]
    for prefix in LEFT_OUT:
        what, about = what.replace(prefix, ""), about.replace(prefix, "")
    if it["object"].startswith(f"{BINDING}/"):
        about = BINDING
    return str(it["position"]), it["at"][CLOCK], it["actor"].partition("/")[0], about, what


def verified(stage: Stage) -> Iterator[Told]:
    report = verify(stage.database)
    check(report.ok, f"{len(report.findings)} findings, the first: {next(iter(report.findings), '')}")
    proven = f"{report.head.position} events in {report.streams} streams"
    yield f"{proven}: positions dense, hash chain whole, views as the log says"
    yield f"last hash {report.head.hash.hex()}"
    with stage.database.read() as connection:
        found = violations(connection, at_rest=True)
    check(not found, f"{len(found)} invariants are broken, the first: {found[0].what if found else ''}")
    yield "no volume given twice, no binding left open, no pod out of reach of its data"
