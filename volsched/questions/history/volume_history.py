"""The claims that a volume served: from when, until when, and the data state at the end."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import orjson
from sqlalchemy import Connection

from volsched.kube.manifest import CLEAN, claim_of, spec, status, uid
from volsched.log.events.envelope import Event
from volsched.log.events.fold import ObjectState, State
from volsched.log.reads.event_audit import Window, stream_backwards, stream_forwards, streams_together
from volsched.log.reads.tail import fold_event, state_as_of
from volsched.questions.audit.answers import Answer, Item, number_in, time_text
from volsched.questions.history.history import entry
from volsched.questions.refusals import UnknownError

CLEAN_DATA = CLEAN.lower()
UNKNOWN_DATA = "unknown, so it counts as dirty"
NEVER_BOUND = "unused: the claim was never bound to it"


class _Holder(NamedTuple):
    """Key and uid of the claim that a volume is reserved for; empty if there is none."""

    claim: str
    uid: str


@dataclass(slots=True)
class Tenure:
    claim: str
    uid: str
    begun: Event | None
    """The event that began the tenure; None: archived."""
    ended: Event | None = None


def bound_at(connection: Connection, volume: str, *, position: int) -> Item:
    """The claim that a volume was bound to at a position, since when and by whom."""
    stream = f"volume/{volume}"
    state = state_as_of(connection, stream, position=position)
    if not isinstance(state, ObjectState):
        raise UnknownError(f'there was no volume "{volume}" yet at position {position}')
    if state.manifest is None:
        raise UnknownError(f'volume "{volume}" was deleted by then; see volsched history pv {volume}')
    holder = _holder(state)
    since = next(
        (it for it in stream_backwards(connection, stream, version=state.version) if _writes_claim_ref(it)), None
    )
    item: Item = {
        "volume": volume,
        "position": position,
        "phase": status(state.manifest).get("phase"),
        "claim": holder.claim or None,
        "claimUid": holder.uid or None,
        "assumedBy": state.assumed.binding if state.assumed is not None and state.is_assumed else None,
    }
    event = None if since is None else entry(since)
    for name, field in (("since", "at"), ("sincePosition", "position"), ("by", "actor"), ("reason", "reason")):
        item[name] = None if event is None else event[field]
    item["binding"] = None if since is None else since.binding
    return item


def claims_of(connection: Connection, volume: str, within: Window, *, after: str | None, limit: int) -> Answer:
    """Every claim that a volume served in a window, and whether the volume was clean when it left the claim."""
    stream = f"volume/{volume}"
    events = stream_forwards(connection, stream, within, after=number_in(after))
    first = next(events, None)
    if first is None and after is None:
        raise UnknownError(f'volume "{volume}" has no history in that time; see volsched history pv {volume}')
    if first is None:
        return Answer()
    start = state_as_of(connection, stream, position=first.position - 1)
    first_tenure = None if after is not None else _tenure_at(connection, stream, start)
    served = list(islice(tenures(start, chain((first,), events), first_tenure), limit + 1))
    page, following = served[:limit], served[limit].begun if len(served) > limit else None
    # The page ends before the event that gave the volume to the next claim.
    token = None if following is None else str(following.version - 1)
    claims = {it.claim: f"claim/{it.claim}" for it in page}
    events_of = streams_together(connection, claims.values())
    items = []
    for tenure in page:
        stream = claims[tenure.claim]
        claim_events = events_of[stream]
        before = (
            None
            if not claim_events or claim_events[0].version == 1
            else state_as_of(connection, stream, position=claim_events[0].position - 1)
        )
        items.append(_tenure_item(tenure, data_state(volume, tenure, claim_events, before)))
    return Answer(items=items, after=token)


def _tenure_at(connection: Connection, stream: str, state: State | None) -> Tenure | None:
    """The claim that the volume serves at the start of the events."""
    holder = _holder(state)
    if state is None or not holder.claim:
        return None
    begun = (it for it in stream_backwards(connection, stream, version=state.version) if _writes_claim_ref(it))
    return Tenure(*holder, next(begun, None))


def tenures(start: State | None, events: Iterable[Event], current: Tenure | None = None) -> Iterator[Tenure]:
    """Each claim that the volume served, when it leaves the claim or the events end.

    `current` is the claim that has the volume at the start, unless an earlier page lists it.
    """
    state, holder = start, _holder(start)
    for event in events:
        state = fold_event(state, event.position, event.version, event.type, event.schema, event.at, event.data)
        before, holder = holder, _holder(state)
        if holder == before:
            continue
        if current is not None and (holder.claim, before.uid) == (before.claim, ""):
            # Pre-bound by name alone, and completed with the uid later: it is the same claim.
            current.uid = holder.uid
            continue
        if current is not None:
            current.ended = event
            yield current
        current = Tenure(*holder, event) if holder.claim else None
    if current is not None:
        yield current


def _holder(state: State | None) -> _Holder:
    manifest = state.manifest if isinstance(state, ObjectState) else None
    ref = None if manifest is None else claim_of(manifest)
    if not ref:
        return _Holder("", "")
    return _Holder(f"{ref.get('namespace')}/{ref.get('name')}", str(ref.get("uid") or ""))


def _writes_claim_ref(event: Event) -> bool:
    patch = orjson.loads(event.data).get("patch")
    written = patch.get("spec") if isinstance(patch, Mapping) else None
    return not event.type.endswith("Assumed") and isinstance(written, Mapping) and "claimRef" in written


def _tenure_item(tenure: Tenure, data_state: str) -> Item:
    begun, ended = tenure.begun, tenure.ended
    return {
        "claim": tenure.claim,
        "claimUid": tenure.uid or None,
        "from": None if begun is None else time_text(begun.at),
        "fromPosition": None if begun is None else begun.position,
        "by": None if begun is None else begun.actor,
        "binding": None if begun is None else begun.binding,
        "until": None if ended is None else time_text(ended.at),
        "untilPosition": None if ended is None else ended.position,
        "endedBy": None if ended is None else ended.actor,
        "reason": None if ended is None else entry(ended)["reason"],
        "data": data_state,
    }


def data_state(volume: str, tenure: Tenure, events: Sequence[Event], start: State | None = None) -> str:
    """The last data state that the claim had while it had the volume, from its own events.

    A claim is usually deleted before its volume is released, and another claim may have its name since.
    """
    state, existed, data = start, False, None
    for event in events:
        if tenure.ended is not None and event.position > tenure.ended.position:
            break
        state = fold_event(state, event.position, event.version, event.type, event.schema, event.at, event.data)
        manifest = state.manifest if isinstance(state, ObjectState) else None
        if manifest is not None and tenure.uid in ("", uid(manifest)):
            existed = True
            if spec(manifest).get("volumeName") == volume:
                data = str(status(manifest).get("dataState") or "")
    if existed and data is None:
        return NEVER_BOUND
    return data.lower() if data else UNKNOWN_DATA
