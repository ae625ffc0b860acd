"""Repairs of stored objects: the selected-node of deleted nodes, and the zonal upgrade of volumes."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from volsched.binding.rules.foreign_notice import notice_effect, unselect_effect
from volsched.kube.kinds import key_of
from volsched.kube.manifest import annotations, uid
from volsched.kube.meta import BINDING_STAMP
from volsched.kube.workloads import Node
from volsched.log.base import read_base
from volsched.log.commands import Command, ConflictError, Done, Precondition
from volsched.log.database import Database
from volsched.log.events.fold import BindingState, Decision, ObjectState, States, living, manifest_of
from volsched.log.reads.event_audit import last_written, lives
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.pv_controller.rules.bind_writes import without_selected_node
from volsched.pv_controller.rules.rollback import claim_stream
from volsched.runtime.clock import SECOND, rfc3339
from volsched.runtime.world import World
from volsched.scheduling.rules.pod_claims import selection_key
from volsched.workloads.agenda import Agenda
from volsched.workloads.rules.repairs import (
    GONE_SECONDS,
    REMOVED,
    ZonalReport,
    ZonalUpgrade,
    convert,
    gone_since,
    has_zone_labels,
    is_promised,
    is_settled,
    is_volume_for,
    labelled_node,
    promised_node,
    removed,
    volume_name,
)

# Removes selected-node from claims whose node is deleted, because it keeps their pods off every other node.
#
# Claims are examined when their node is missing, when a node of that name is created or deleted, and once at
# the start. The log shows when a node was deleted, and whether a node of that name is the selected one.

BATCH = 256
CLAIM = "PersistentVolumeClaim"
COMPONENT = "volsched-repair"


@dataclass(slots=True)
class StaleNodes:
    database: Database
    world: World
    owner: str
    patience_seconds: int = GONE_SECONDS
    is_foreign: bool = False
    """Whether the claims are a foreign cluster's: only nodes that we selected are removed, by an effect."""
    _agenda: Agenda = field(default_factory=Agenda)
    _promised: dict[str, str] = field(default_factory=dict)
    """Claim → the node that it waits for; both as streams."""
    _waiting: dict[str, set[str]] = field(default_factory=dict)
    _uids: dict[str, str] = field(default_factory=dict)
    """Node → its uid when last seen: another uid is another node."""
    _started: bool = False

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; time is asked in `step`
        states = self.world.states
        for stream in streams:
            if stream.startswith("claim/"):
                if stream in self._promised or is_promised(states.get(stream)):
                    self._update_claim(stream)
            elif stream.startswith("node/"):
                self._update_node(stream)
        if not self._started and self._promised:
            # A node may have been replaced before this process started.
            self._agenda.add(self._promised)
        self._started = True

    def step(self, now: int) -> int:
        with self._agenda.batch(now, BATCH) as claims:
            wanted = dict(self._commands(self._due(claims, now), now)) if claims else {}
            outcomes = execute(self.database, list(wanted.values()), now=now)
        # The claim has changed since it was read: no other event would queue it again while its node exists.
        late = ConflictError
        self._agenda.add(it for it, outcome in zip(wanted, outcomes, strict=True) if isinstance(outcome, late))
        return len(claims)

    def next_due(self) -> int | None:
        return self._agenda.next_due()

    def _update_claim(self, stream: str) -> None:
        manifest = manifest_of(self.world.states, stream)
        node = None if manifest is None else promised_node(manifest)
        if self.is_foreign and BINDING_STAMP not in annotations(manifest or {}):
            node = None
        before = self._promised.pop(stream, None)
        if before is not None:
            self._waiting[before].discard(stream)
            if not self._waiting[before]:
                del self._waiting[before]
        if node is None:
            self._agenda.drop(stream)
            return
        self._promised[stream] = f"node/{node}"
        self._waiting.setdefault(f"node/{node}", set()).add(stream)
        if f"node/{node}" not in self.world.states:
            self._agenda.add((stream,))

    def _update_node(self, stream: str) -> None:
        manifest = manifest_of(self.world.states, stream)
        known = "" if manifest is None else uid(manifest)
        if self._uids.get(stream, "") != known and stream in self._waiting:
            self._agenda.add(self._waiting[stream])
        if known:
            self._uids[stream] = known
        else:
            self._uids.pop(stream, None)

    def _due(self, batch: Iterable[str], now: int) -> dict[str, ObjectState]:
        """Claims whose node was deleted long enough ago; the others are deferred or dropped."""
        overdue: dict[str, ObjectState] = {}
        for stream in batch:
            state = living(self.world.states, stream)
            since = None if state is None or stream not in self._promised else self._gone_since(stream)
            if state is None or since is None:
                continue
            due = since + self.patience_seconds * SECOND
            if now < due:
                self._agenda.put_off(stream, due)
            else:
                overdue[stream] = state
        return overdue

    def _gone_since(self, stream: str) -> int | None:
        key = selection_key(annotations(manifest_of(self.world.states, stream) or {}))
        with self.database.read() as connection:
            written = last_written(connection, stream, "metadata", "annotations", key)
            base = read_base(connection)
            promised, at = (base.position, base.at) if written is None else (written.position, written.at)
            return gone_since(lives(connection, self._promised[stream]), promised=promised, promised_at=at)

    def _commands(self, due: dict[str, ObjectState], now: int) -> Iterator[tuple[str, Command]]:
        if not due:
            return
        taken = self._claims_in_use(due)
        for stream, state in due.items():
            # A held claim is examined again when it is released: that changes the claim.
            if stream not in taken:
                yield stream, self._removal_command(stream, state, now)

    def _claims_in_use(self, due: dict[str, ObjectState]) -> set[str]:
        """Claims that an open binding holds, or that have a volume; one scan for all of them."""
        claims = {stream: state.manifest or {} for stream, state in due.items()}
        promised = {f"volume/{volume_name(claim)}": stream for stream, claim in claims.items()}
        taken: set[str] = set()
        for stream, state in self.world.states.items():
            if isinstance(state, BindingState):
                taken |= {f"claim/{leg.claim}" for leg in state.legs if leg.open}
            elif stream.startswith("volume/") and isinstance(state, ObjectState):
                volume = state.manifest or {}
                candidates = {promised.get(stream), claim_stream(volume)} & claims.keys()
                taken |= {it for it in candidates if it is not None and is_volume_for(volume, claims[it])}
        return taken

    def _removal_command(self, stream: str, state: ObjectState, now: int) -> Command:
        claim = state.manifest or {}
        node = self._promised[stream].partition("/")[2]
        if self.is_foreign:
            return self._foreign_removal_command(stream, state, node)
        said = door.notice(
            CLAIM, key_of(CLAIM, claim), door.controller(self.owner, now),
            uid=uid(claim), type_="Normal", reason=REMOVED, message=removed(node),
            component=COMPONENT,
        )  # fmt: skip
        # A binding's plan changes the claim too, so a plan made meanwhile refuses this write.
        write = door.update(CLAIM, without_selected_node(claim), door.controller(self.owner, now), expected=state)
        return door.together(write.command, said, precondition=Precondition(versions={stream: state.version}))

    def _foreign_removal_command(self, stream: str, state: ObjectState, node: str) -> Command:
        claim = state.manifest or {}
        removal = unselect_effect(claim, node)
        notice = notice_effect(
            removal.key,
            kind=CLAIM,
            key=key_of(CLAIM, claim),
            uid=uid(claim),
            type_="Normal",
            reason=REMOVED,
            message=removed(node),
        )
        decided = Decision(effects=(removal, notice))
        return Command(
            actor=self.owner,
            streams=(stream,),
            decide=lambda _: decided,
            precondition=Precondition(versions={stream: state.version}),
        )


# The zonal upgrade of existing volumes: all of them at the start, then every new or changed one.
#
# Volumes that arrive through `apply` or the cluster's port are converted on creation (`rules.repairs.admit`).
# This converts the rest, and reports labels that cannot be converted.


@dataclass(slots=True)
class ZonalUpgrader:
    database: Database
    world: World
    owner: str
    report: ZonalReport = field(default_factory=ZonalReport)
    """The upgrades since the start of this process."""
    _agenda: Agenda = field(default_factory=Agenda)
    _nodes: dict[str, None] = field(default_factory=dict)

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; nothing here waits
        states = self.world.states
        for stream in streams:
            if stream.startswith("volume/"):
                manifest = manifest_of(states, stream)
                if manifest is not None and has_zone_labels(manifest):
                    self._agenda.add((stream,))
            elif stream.startswith("node/"):
                if stream in states:
                    self._nodes[stream] = None
                else:
                    self._nodes.pop(stream, None)

    def step(self, now: int) -> int:
        with self._agenda.batch(now, BATCH) as taken:
            wanted = list(self._due_upgrades(taken, now))
            outcomes = execute(self.database, [command for _, command in wanted], now=now)
        for (upgrade, _), outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, Done) and outcome.events:
                self.report.count(upgrade)
        return len(taken)

    def next_due(self) -> int | None:
        return self._agenda.next_due()

    def _due_upgrades(self, volumes: Iterable[str], now: int) -> Iterator[tuple[ZonalUpgrade, Command]]:
        unsettled = [stream for stream in volumes if not is_settled(stream, self.world.states)]
        if not unsettled:
            # Nodes are scanned only if a volume may be converted.
            return
        nodes = [labelled_node(manifest_of(self.world.states, stream) or {}) for stream in self._nodes]
        for stream in unsettled:
            upgrade, events = convert(stream, self.world.states, nodes, now=rfc3339(now))
            if events:
                streams = (stream, *(event.stream for event in events))
                yield upgrade, self._command(stream, streams, nodes, now)

    def _command(self, stream: str, streams: Iterable[str], nodes: Collection[Node], now: int) -> Command:
        """The upgrade, decided on the volume's latest state: a phase change meanwhile must not prevent it."""

        def decide(states: States) -> Decision:
            return Decision(events=convert(stream, states, nodes, now=rfc3339(now))[1])

        return Command(actor=self.owner, streams=tuple(dict.fromkeys(streams)), decide=decide)
