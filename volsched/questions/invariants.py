"""The invariants of a store: conditions that must hold after any crash.

Some hold at every moment, some only once all work has finished; drills and tests check both. The store's own
integrity (chain, density, views) is checked by `log.integrity.verify`.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlalchemy import Connection

from volsched.binding.rules.phases import LegPhase, Phase
from volsched.kube.manifest import (
    CLEAN,
    DIRTY,
    Manifest,
    annotations,
    claim_is_bound,
    claim_of,
    spec,
    status,
    uid,
    volume_reaches,
)
from volsched.kube.meta import BINDING_STAMP
from volsched.kube.patches import merged
from volsched.kube.quantity import parse_quantity
from volsched.kube.workloads import TERMINATED, Pod
from volsched.log.base import load_base
from volsched.log.events.fold import BindingState, ObjectState, State, manifest_of
from volsched.log.reads.open_bindings import bindings_of_effects
from volsched.log.reads.tail import fold_event, read_head, tails
from volsched.node_agent.rules.lifecycle import RUNNING, admitted_by
from volsched.scheduling.cluster_view import read_object
from volsched.scheduling.rules.pod_claims import claim_uses

PLANNED = "BindingPlanned"


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: int
    """The invariant's number, as drills report it."""
    what: str


def violations(connection: Connection, *, at_rest: bool) -> list[Violation]:
    """Every violation; `at_rest` also reports states that are allowed only while work is in flight."""
    return Lookout().check(connection, at_rest=at_rest)


@dataclass(slots=True)
class Lookout:
    """Repeated checks, as in drills: events that the last check folded are not folded again."""

    states: dict[str, State] = field(default_factory=dict)
    position: int = -1
    """The position of the last event read; -1: none yet."""

    def check(self, connection: Connection, *, at_rest: bool) -> list[Violation]:
        violations: list[Violation] = []
        if self.position < 0:
            base = load_base(connection)
            self.states, self.position = base.states, base.head.position
        states = self.states
        for events in tails(connection, after=self.position):
            for event in events:
                before = states.get(event.stream)
                after = fold_event(
                    before, event.position, event.version, event.type, event.schema, event.at, event.data
                )
                states[event.stream] = after
                violations += _dirty_unbound(event.stream, before, after)
                if event.type == PLANNED:
                    violations += _exceeded_capacity(states, after)
                    violations += _exceeded_attach_limits(states, after)
            self.position = events[-1].position
        violations += _double_bound(states)
        violations += _stale_stamps(states)
        violations += _shared_legs(states)
        violations += _running_on_clean(states)
        if at_rest:
            violations += _open_bindings(states, read_head(connection).at)
            violations += _misplaced_pods(states)
            violations += _leftovers(connection, states)
        return violations


def _objects(states: dict[str, State], noun: str) -> Iterator[tuple[str, Manifest]]:
    for stream, state in states.items():
        if stream.startswith(f"{noun}/") and isinstance(state, ObjectState) and state.manifest is not None:
            yield stream.partition("/")[2], state.manifest


def _bindings(states: dict[str, State]) -> Iterator[tuple[str, BindingState]]:
    for stream, state in states.items():
        if isinstance(state, BindingState):
            yield stream.partition("/")[2], state


def _dirty_unbound(stream: str, before: State | None, after: State) -> Iterator[Violation]:
    """4: a claim that may hold data keeps its volume."""
    if (
        not stream.startswith("claim/")
        or not isinstance(before, ObjectState)
        or not isinstance(after, ObjectState)
    ):
        return
    if before.manifest is None or after.manifest is None or status(before.manifest).get("dataState") != DIRTY:
        return
    if spec(before.manifest).get("volumeName") and not spec(after.manifest).get("volumeName"):
        yield Violation(4, f"{stream} was dirty and lost its volume at {after.rv}")


def _running_on_clean(states: dict[str, State]) -> Iterator[Violation]:
    """4: a claim of a running pod that a node agent has admitted is not marked clean."""
    for key, manifest in _objects(states, "pod"):
        pod = read_object("pod", manifest, 0)
        if not isinstance(pod, Pod) or pod.phase != RUNNING or admitted_by(manifest) is None:
            continue
        for use in claim_uses(pod):
            claim = manifest_of(states, f"claim/{use.key}")
            if claim is not None and status(claim).get("dataState") == CLEAN:
                yield Violation(4, f"pod/{key} runs and claim/{use.key} is marked clean")


def _double_bound(states: dict[str, State]) -> Iterator[Violation]:
    """1: a volume is bound to at most one claim, and that claim to the volume."""
    holders: dict[str, list[str]] = defaultdict(list)
    for key, claim in _objects(states, "claim"):
        if not claim_is_bound(claim):
            continue
        name = spec(claim)["volumeName"]
        holders[name].append(key)
        volume = manifest_of(states, f"volume/{name}")
        reference = None if volume is None else claim_of(volume)
        if reference is not None and reference.get("uid") not in (None, uid(claim)):
            yield Violation(1, f"claim/{key} is bound to {name}, which is reserved for {reference.get('name')}")
    for name, claims in holders.items():
        if len(claims) > 1:
            yield Violation(1, f"volume/{name} is bound to {' and '.join(sorted(claims))}")


def _stale_stamps(states: dict[str, State]) -> Iterator[Violation]:
    """2: an object that carries our stamp belongs to a leg that is open, committed or retained."""
    for noun in ("volume", "claim"):
        for key, manifest in _objects(states, noun):
            stamp = annotations(manifest).get(BINDING_STAMP)
            if stamp is None:
                continue
            binding = states.get(f"binding/{stamp}")
            if not isinstance(binding, BindingState):
                yield Violation(2, f"{noun}/{key} carries the stamp of binding {stamp}, which never existed")
            elif not binding.open and binding.state != Phase.COMMITTED:
                legs = [leg for leg in binding.legs if key in (leg.volume, leg.claim)]
                if all(leg.state != LegPhase.RETAINED for leg in legs):
                    yield Violation(2, f"{noun}/{key} carries the stamp of binding {stamp}, which let go of it")


def _shared_legs(states: dict[str, State]) -> Iterator[Violation]:
    """1: a volume, and a claim, is in at most one open owner leg."""
    for part in ("volume", "claim"):
        owners: dict[str, list[str]] = defaultdict(list)
        for binding, state in _bindings(states):
            for leg in state.legs:
                # Another party may choose the volume of a claim to be provisioned; no plan relied on it.
                name = None if part == "volume" and leg.dynamic else getattr(leg, part)
                if state.open and leg.open and leg.owner and name is not None:
                    owners[name].append(binding)
        for name, bindings in owners.items():
            if len(bindings) > 1:
                yield Violation(1, f"{part}/{name} is in open legs of {' and '.join(sorted(bindings))}")


def _exceeded_capacity(states: dict[str, State], planned: State) -> Iterator[Violation]:
    """14: when a plan is made, the reservations of a capacity object for volumes that it does not count yet do not
    exceed its capacity. The capacity may shrink afterwards."""
    if not isinstance(planned, BindingState):
        return
    capacities = {leg.capacity for leg in planned.legs if leg.capacity}
    if not capacities:
        return
    reserved: dict[str, dict[str, int]] = defaultdict(dict)
    provisioned = {(claim_of(manifest) or {}).get("uid") for _, manifest in _objects(states, "volume")}
    for _, state in _bindings(states):
        for leg in state.legs:
            if state.open and leg.open and leg.capacity in capacities and leg.claim_uid not in provisioned:
                # By claim: a claim gets one volume, even if several pods wait for it.
                reserved[leg.capacity or ""][leg.claim_uid] = leg.bytes or 0
    for key in sorted(capacities):
        room = parse_quantity(str((manifest_of(states, f"capacity/{key}") or {}).get("capacity", "0"))).value()
        total = sum(reserved[key].values())
        if total > room:
            yield Violation(14, f"{total} bytes are reserved of capacity/{key}, which has {room}")


def _exceeded_attach_limits(states: dict[str, State], planned: State) -> Iterator[Violation]:
    """8: when a plan is made, its node can attach every present or planned disk of a driver."""
    node = planned.plan["node"] if isinstance(planned, BindingState) else ""
    csi_node = spec(manifest_of(states, f"csinode/{node}") or {})
    counts = {it["name"]: (it.get("allocatable") or {}).get("count") for it in csi_node.get("drivers") or ()}
    limits = {driver: count for driver, count in counts.items() if count is not None}
    if not limits or not isinstance(planned, BindingState):
        return
    volume_of = {
        reference.get("uid"): name
        for name, manifest in _assumed(states, "volume")
        if (reference := claim_of(manifest)) is not None
    }
    attached: set[str] = set()
    for key, manifest in _assumed(states, "pod"):
        pod = read_object("pod", manifest, 0)
        if isinstance(pod, Pod) and pod.node_name == node and key != planned.plan["pod"] and _uses_disks(pod):
            claims = (manifest_of(states, f"claim/{use.key}") for use in claim_uses(pod))
            named = (spec(it).get("volumeName") or volume_of.get(uid(it)) for it in claims if it is not None)
            attached |= {str(name) for name in named if name}
    coming = {leg.volume for leg in planned.legs if leg.volume is not None} - attached
    for driver, limit in sorted(limits.items()):
        added, disks = _of_driver(states, driver, coming), _of_driver(states, driver, coming | attached)
        if added and len(disks) > limit:
            names = " and ".join(sorted(disks))
            yield Violation(8, f"volumes {names} are coming to node {node}, which attaches {limit} of {driver}")


def _assumed(states: dict[str, State], noun: str) -> Iterator[tuple[str, Manifest]]:
    """The objects as open bindings will write them."""
    for key, manifest in _objects(states, noun):
        state = states[f"{noun}/{key}"]
        overlay = state.assumed if isinstance(state, ObjectState) else None
        owner = None if overlay is None else states.get(f"binding/{overlay.binding}")
        in_force = overlay is not None and isinstance(owner, BindingState) and owner.open
        yield key, merged(manifest, overlay.patch) if overlay is not None and in_force else manifest


def _uses_disks(pod: Pod) -> bool:
    return pod.phase not in TERMINATED


def _of_driver(states: dict[str, State], driver: str, volumes: set[str]) -> set[str]:
    disks = {name: spec(manifest_of(states, f"volume/{name}") or {}).get("csi") or {} for name in volumes}
    return {name for name, disk in disks.items() if disk.get("driver") == driver}


def _open_bindings(states: dict[str, State], now: int) -> Iterator[Violation]:
    """3: every binding ends. A reservation may stay open until its lease ends."""
    for binding, state in _bindings(states):
        in_time = state.state == Phase.RESERVED and now < (state.plan.get("deadline") or 0)
        if state.open and not in_time:
            yield Violation(3, f"binding/{binding} is still {state.state}")


def _misplaced_pods(states: dict[str, State]) -> Iterator[Violation]:
    """8: a pod runs where its claims are bound and its volumes can be reached."""
    for key, manifest in _objects(states, "pod"):
        pod = read_object("pod", manifest, 0)
        node = manifest_of(states, f"node/{spec(manifest).get('nodeName')}")
        if not isinstance(pod, Pod) or not pod.node_name or node is None:
            continue
        for use in claim_uses(pod):
            claim = manifest_of(states, f"claim/{use.key}")
            if claim is None or not claim_is_bound(claim):
                yield Violation(8, f"pod/{key} is on {pod.node_name} and claim/{use.key} is not bound")
                continue
            volume = manifest_of(states, f"volume/{spec(claim)['volumeName']}")
            if volume is not None and not volume_reaches(volume, node):
                yield Violation(8, f"pod/{key} is on {pod.node_name}, out of reach of its volume")


def _leftovers(connection: Connection, states: dict[str, State]) -> Iterator[Violation]:
    """3: no assumption and no work is left over."""
    for stream, state in states.items():
        if isinstance(state, ObjectState) and state.assumed is not None and state.is_assumed:
            owner = states.get(f"binding/{state.assumed.binding}")
            if isinstance(owner, BindingState) and not owner.open:
                yield Violation(3, f"{stream} is still assumed by binding {state.assumed.binding}")
    for key, binding in bindings_of_effects(connection):
        owner = states.get(f"binding/{binding}")
        if isinstance(owner, BindingState) and not owner.open:
            yield Violation(3, f"effect {key} is queued for a binding that has ended")
