"""The PV controller's part of a binding in one transaction: it binds a prebound volume and its claim.

The tables are the controller's own. They run here without its lease, because they read only the volume that the
binding has just written and the claim that waits for it, both inside the transaction itself. All other work on
volume and claim is left to the controller.
"""

from dataclasses import dataclass, field

from volsched.binding.rules.phases import UNDER_WAY
from volsched.binding.rules.saga import open_binding
from volsched.kube.manifest import annotations, claim_is_bound, claim_of, is_being_deleted, spec, status, uid
from volsched.kube.meta import BINDING_STAMP, ROLLBACK
from volsched.kube.storage import AVAILABLE, WAIT_FOR_FIRST_CONSUMER, Claim, StorageClass
from volsched.log.commands import Command
from volsched.log.events.fold import NOTHING, Decision, ObjectState, States, living, manifest_of, versioned
from volsched.log.events.streams import noun_and_key
from volsched.pv_controller.rules import (
    CLAIM,
    VOLSCHED,
    VOLUME,
    Caches,
    ParsedObject,
    SyncError,
    drive,
    parsed_class,
    protect_claim,
    sync_claim,
)
from volsched.pv_controller.sync import Sync


@dataclass(frozen=True, slots=True)
class LegCompletion:
    actor: str
    _classes: dict[str, tuple[int, ParsedObject[StorageClass]]] = field(default_factory=dict)
    """Stream → the version that was read, and its value: all claims of a burst share a few classes."""

    def __call__(self, binding: str, volume: str, states: States) -> Command | None:
        """The command that binds volume and claim to each other; None if more work than that is left."""
        claim = _waiting_claim(binding, volume, states)
        if claim is None:
            return None
        named = spec(manifest_of(states, claim) or {}).get("storageClassName") or ""
        streams = volume, claim, f"class/{named}"
        return Command(actor=self.actor, streams=streams, decide=lambda now: self._bound(now, *streams))

    def _bound(self, states: States, volume: str, claim: str, class_: str) -> Decision:
        storage_class, wanted, target = (living(states, it) for it in (class_, claim, volume))
        if storage_class is None or wanted is None or target is None:
            return NOTHING
        parsed = self._class(class_, storage_class)
        if parsed.value.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
            # The controller would search: only in a delayed class is the reserved volume the only match.
            return NOTHING
        key, name = noun_and_key(claim)[1], noun_and_key(volume)[1]
        caches = Caches([(CLAIM, versioned(wanted)), (VOLUME, versioned(target))])
        caches.put("StorageClass", parsed)
        sync = Sync((CLAIM, key), states, 0, caches, _never)
        try:
            drive(sync_claim(caches, _claim(caches, key), rules=VOLSCHED), sync.answer)
            drive(protect_claim(caches, _claim(caches, key)), sync.answer)
        except SyncError:
            return NOTHING
        is_more = sync.notices or sync.operations or sync.enqueued or sync.scan
        is_bound = _claim(caches, key).value.volume_name == name
        return Decision(events=tuple(sync.events)) if is_bound and not is_more else NOTHING

    def _class(self, stream: str, state: ObjectState) -> ParsedObject[StorageClass]:
        known = self._classes.get(stream)
        if known is None or known[0] != state.rv:
            known = self._classes[stream] = state.rv, parsed_class(versioned(state))
        return known[1]


def _waiting_claim(binding: str, volume: str, states: States) -> str | None:
    """The stream of the claim that the binding has just given the volume to, if nothing else is pending."""
    state, manifest = open_binding(binding, states), manifest_of(states, volume)
    named = None if manifest is None else claim_of(manifest)
    if state is None or state.state not in UNDER_WAY or manifest is None or named is None:
        return None
    if annotations(manifest).get(BINDING_STAMP) != binding or is_being_deleted(manifest):
        return None
    if status(manifest).get("phase") != AVAILABLE:
        return None
    stream = f"claim/{named.get('namespace')}/{named.get('name')}"
    claim = manifest_of(states, stream)
    if claim is None or uid(claim) != named.get("uid") or is_being_deleted(claim) or claim_is_bound(claim):
        return None
    return None if spec(claim).get("volumeName") or ROLLBACK in annotations(claim) else stream


def _claim(caches: Caches, key: str) -> ParsedObject[Claim]:
    claim = caches.claim(key)
    assert claim is not None
    return claim


def _never(kind: str, key: str) -> None:
    raise AssertionError(f"{kind} {key} is bound here, and nothing is removed")
