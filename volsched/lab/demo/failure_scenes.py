"""Scenes of failure: a worker that is killed between two writes, and a volume that somebody else takes."""

import signal
from collections.abc import Iterator

from volsched.binding.recovery import Recovered, recover
from volsched.binding.rules.phases import LegPhase, Phase
from volsched.binding.rules.saga import PREBIND
from volsched.lab.demo.objects import LEDGER, QUEUE, RACK, SHOP
from volsched.lab.demo.stage import Rows, Stage, Told, check, new_id
from volsched.lab.demo.worker import LEASE_SECONDS
from volsched.log.events.fold import BindingState
from volsched.log.reads.event_audit import EVERYTHING, stream_page
from volsched.runtime.clock import system_clock
from volsched.runtime.system import System

LEDGER_POD, QUEUE_POD = f"{SHOP}/ledger-0", f"{SHOP}/queue-0"
STOLEN, SOMEBODY = "n1-large", "somebody-else"
SECOND_CLAIMED = "executor.claimed*2:kill"
"""The first volume is written by then, the second is the worker's to write, and it never will."""
PAGE = 100


def killed(stage: Stage) -> Iterator[Told]:
    stage.apply(LEDGER)
    with stage.system() as system:
        _plan(system)
    binding, planned = stage.last_binding(LEDGER_POD)
    yield f"pod {LEDGER_POD} is planned on {planned.plan['node']}; a worker process has two volumes to write."
    code = stage.run_worker(fault=SECOND_CLAIMED)
    check(code == -signal.SIGKILL, f"the worker ended with {code}, not by SIGKILL")
    _, left = stage.last_binding(LEDGER_POD)
    check(
        [leg.state for leg in left.legs] == [LegPhase.WRITTEN, LegPhase.ASSUMED], "it left something else behind"
    )
    yield f"The worker was killed (SIGKILL) between the two. What it left, binding {binding} ({left.state}):"
    yield _legs(left)
    report = recover(stage.database, owner=new_id(), now=system_clock(), dry_run=True)
    check([it.outcome for it in report.found] == [Recovered.RESUMED], "recovery would not go on with it")
    seconds = stage.run()
    _, ended = stage.last_binding(LEDGER_POD)
    check(
        (ended.state, stage.node_of(LEDGER_POD)) == (Phase.COMMITTED, ended.plan["node"]), f"it is {ended.state}"
    )
    yield f"Recovered {seconds:.1f} s later, when the dead worker's lease of {LEASE_SECONDS} s had run out:"
    yield _legs(ended)
    writes = [_times_given(stage, leg.volume or "") for leg in ended.legs]
    check(writes == [1, 1], f"the volumes were written {writes} times")
    yield f"The binding is {ended.state}, the pod on {ended.plan['node']}; each volume was written exactly once."


def stolen(stage: Stage) -> Iterator[Told]:
    stage.apply(RACK)
    stage.run()
    stage.apply(QUEUE)
    with stage.system() as system:
        # One effect at a time, so that there is a moment between the two writes.
        system.executor.batch = 1
        _plan(system)
        system.executor.step(PREBIND, system_clock())
        binding, half = stage.last_binding(QUEUE_POD)
        yield f"pod {QUEUE_POD} asks for 2Gi and 6Gi; the closest fit is {half.plan['node']}. Half way:"
        yield _legs(half)
        check([leg.state for leg in half.legs] == [LegPhase.WRITTEN, LegPhase.ASSUMED], "it is not half way")
        _take(stage, STOLEN)
        yield f"Now somebody else gives {STOLEN} to a claim of their own."
        seconds = stage.settle(system)
    second, done = stage.last_binding(QUEUE_POD, of=2)
    first, undone = stage.bindings_of(QUEUE_POD)[0]
    check((first, undone.state, done.state) == (binding, Phase.ROLLED_BACK, Phase.COMMITTED), "it ended otherwise")
    yield f"binding {first} is {undone.state}: {undone.reason}"
    yield _legs(undone)
    check([leg.state for leg in undone.legs] == [LegPhase.RELEASED, LegPhase.VOIDED], "a leg was not undone")
    check("claimRef" not in stage.get("volume", "n1-small")["spec"], "n1-small was not freed")
    check(stage.node_of(QUEUE_POD) == done.plan["node"] == "node-0", f"the pod is on {stage.node_of(QUEUE_POD)}")
    yield f"n1-small is free again, and binding {second} is {done.state} ({seconds:.1f} s in all):"
    yield _legs(done)
    yield f"The pod is on {done.plan['node']}."


def _plan(system: System) -> None:
    """The scheduler alone moves: it decides, and queues the writes."""
    now = system_clock()
    system.catch_up(now)
    system.scheduler.step(now)


def _take(stage: Stage, volume: str) -> None:
    found = stage.get("volume", volume)
    owner = {"kind": "PersistentVolumeClaim", "namespace": "elsewhere", "name": "report"}
    taken = {**found, "spec": {**found["spec"], "claimRef": owner}}
    stage.apply([taken], actor=SOMEBODY, reason="we need it more")


def _legs(state: BindingState) -> Rows:
    return Rows(("claim", "volume", "state"), [(leg.claim, leg.volume or "-", leg.state) for leg in state.legs])


def _times_given(stage: Stage, volume: str) -> int:
    """How often the volume was given to a claim by a write that happened; assumptions are none."""
    with stage.database.read() as connection:
        events = stream_page(connection, f"volume/{volume}", EVERYTHING, limit=PAGE)
    return sum(it.type == "VolumeChanged" and '"claimRef":{' in it.data for it in events)
