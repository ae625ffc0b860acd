"""A long history as the system writes it: pods are created, bound or rolled back, deleted, and volumes are reused.

Scripted, not run: a million events of a real run would take hours, and the cost of an audit question depends on
the number of events, streams and bindings, not on their writer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from volsched.lab.bench.log import create_volume, must
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import NOTHING, Decision, States
from volsched.log.reads.tail import read_head
from volsched.log.transaction import execute
from volsched.objects.rules.object_events import created_event

SECOND = 1_000_000
STORIES_PER_COMMIT = 50
EVENTS_PER_VOLUME, FEWEST_VOLUMES = 100, 2 * STORIES_PER_COMMIT
NODES, ZONES = 100, 5
EVENTS_PER_STORY = 19
"""Approximate; a story that is rolled back has fewer."""
FEWEST_EVENTS = 1_500
"""The least length of a history in which some stories have ended."""
CLASSES = ("fast", "slow", "archive")
ROLLED_BACK_EVERY = 20
BY_HAND_EVERY = 100
HOT_EVERY = 50
"""How often the same volume is used again: one stream is far longer than the others."""
STOLEN = "binding volumes: the volume was taken by somebody else"


@dataclass(frozen=True, slots=True)
class Story:
    """One pod with one claim, from its creation to its end."""

    number: int
    volume: str

    @property
    def id(self) -> str:
        return f"story-{self.number:07}"

    @property
    def key(self) -> str:
        return f"bench/{self.id}"

    @property
    def node(self) -> str:
        return f"node-{self.number % NODES:03}"

    @property
    def fails(self) -> bool:
        return self.number % ROLLED_BACK_EVERY == 0


def fill_stories(database: Database, *, events: int) -> Iterator[int]:
    """At least so many events; yields those written so far. The last few pods are in flight."""
    events = max(events, FEWEST_EVENTS)
    volumes = _volumes_of(events)
    yield _make_cluster(database, volumes)
    number, written = 0, 0
    while written < events:
        stories = [Story(n, _volume(n, volumes)) for n in range(number, number + STORIES_PER_COMMIT)]
        number += STORIES_PER_COMMIT
        for part in (_begin, _go_on, _end):
            with database.read() as connection:
                head = read_head(connection)
            written = head.position
            if written < events:
                commands = _commands(stories, part, written)
                must(execute(database, commands, now=head.at + SECOND, react=lambda _, __: NOTHING))
        yield written
    late = [Story(n, f"late-{n}") for n in range(number, number + STORIES_PER_COMMIT)]
    with database.read() as connection:
        head = read_head(connection)
    commands = [create_volume(story.volume) for story in late]
    commands += _commands(late, _begin, head.position + len(commands))
    must(execute(database, commands, now=head.at + SECOND, react=lambda _, __: NOTHING))


def ended_stories(head: int) -> int:
    """How many have certainly ended: some of the last two commits are under way."""
    return (head - NODES - _volumes_of(head)) // EVENTS_PER_STORY - 2 * STORIES_PER_COMMIT


def _volumes_of(events: int) -> int:
    return max(events // EVENTS_PER_VOLUME, FEWEST_VOLUMES)


def _volume(number: int, volumes: int) -> str:
    # Stories of one commit follow one another, so that no volume serves two pods at once.
    index = 1 + number % (volumes - 1) if number % HOT_EVERY else 0
    return f"volume-{index:06}"


def _make_cluster(database: Database, volumes: int) -> int:
    objects = [created_event(f"node/node-{n:03}", _node(n)) for n in range(NODES)]
    must(execute(database, [_writing("cli/apply/bench", objects)], now=1))
    for start in range(0, volumes, 500):
        commands = [create_volume(f"volume-{n:06}") for n in range(start, min(start + 500, volumes))]
        must(execute(database, commands, now=1))
    return NODES + volumes


def _node(number: int) -> dict[str, Any]:
    labels = {
        "topology.kubernetes.io/zone": f"zone-{number % ZONES}",
        "kubernetes.io/hostname": f"node-{number}",
    }
    name = f"node-{number:03}"
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels}}


Part = Callable[[Story, int], list[tuple[str, list[NewEvent]]]]


def _commands(stories: list[Story], part: Part, position: int) -> list[Command]:
    """`position` is that of the last event, so that causes can be named before they are written."""
    commands = []
    for story in stories:
        for actor, events in part(story, position):
            commands.append(_writing(actor, events))
            position += len(events)
    return commands


def _writing(actor: str, events: list[NewEvent]) -> Command:
    def decide(_: States) -> Decision:
        return Decision(events=tuple(events))

    return Command(actor=actor, streams=tuple({event.stream for event in events}), decide=decide)


def _begin(story: Story, position: int) -> list[tuple[str, list[NewEvent]]]:
    """Created, decided and planned."""
    meta = {"name": story.id, "namespace": "bench", "uid": f"uid-{story.id}"}
    spec = {"storageClassName": CLASSES[story.number % len(CLASSES)]}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}}
    created = [_of(f"claim/{story.key}", "ClaimCreated", claim), _of(f"pod/{story.key}", "PodCreated", pod)]
    reasons = [
        {"reason": "node(s) didn't find available persistent volumes to bind", "nodes": 97, "some": ["node-001"]}
    ]
    detail = {"message": "", "reasons": reasons, "score": 71, "runnersUp": [{"node": "node-002", "score": 64}]}
    decided = {"pod": story.key, "pod_uid": f"uid-{story.id}", "node": story.node, "decided_at": position}
    attempt = {**decided, "outcome": "planned", "detail": detail, "decider": "bench"}
    leg = {"claim": story.key, "claim_uid": f"uid-{story.id}", "volume": story.volume, "rv": "1"}
    assumed = {"binding": story.id, "patch": {"spec": {"claimRef": _claim_ref(story)}}, "rv": 1}
    on_pod = {"binding": story.id, "patch": {"spec": {"nodeName": story.node}}, "rv": 1}
    plan = [
        NewEvent(stream=f"attempt/{story.id}", type="AttemptMade", data=attempt, binding=story.id),
        _step(story, "BindingPlanned", {**decided, "legs": [leg], "deadline": 2**60}, cause=position + 2),
        NewEvent(stream=f"volume/{story.volume}", type="VolumeAssumed", data=assumed, binding=story.id),
        NewEvent(stream=f"pod/{story.key}", type="PodAssumed", data=on_pod, binding=story.id),
    ]
    return [("cli/apply/bench" if _by_hand(story) else "statefulsets/bench", created), ("scheduler/bench", plan)]


def _go_on(story: Story, position: int) -> list[tuple[str, list[NewEvent]]]:
    """Written, bound and committed; or refused and rolled back."""
    if story.fails:
        return [
            ("worker/bench", [_leg(story, "voided", reason=STOLEN), *_freed(story)]),
            ("volsched", [_moved(story, "compensating", cause=position + 1, reason=STOLEN)]),
            ("volsched", [_moved(story, "rolled-back", cause=position + 4, reason=STOLEN)]),
        ]
    on_volume = {"spec": {"claimRef": _claim_ref(story)}, "status": {"phase": "Bound"}}
    on_claim = {"spec": {"volumeName": story.volume}, "status": {"phase": "Bound", "dataState": "Clean"}}
    written = [_of(f"volume/{story.volume}", "VolumeChanged", on_volume, story.id), _leg(story, "written")]
    return [
        ("worker/bench", [*written, _moved(story, "waiting")]),
        ("controller/bench", [_of(f"claim/{story.key}", "ClaimChanged", on_claim)]),
        ("volsched", [_leg(story, "bound", cause=position + 4), _moved(story, "committing", cause=position + 4)]),
        ("worker/bench", [_of(f"pod/{story.key}", "PodChanged", {"spec": {"nodeName": story.node}}, story.id)]),
        ("worker/bench", [_moved(story, "committed", cause=position + 6)]),
    ]


def _end(story: Story, position: int) -> list[tuple[str, list[NewEvent]]]:
    """The pod and its claim are deleted; the volume is freed."""
    gone = [
        NewEvent(stream=f"pod/{story.key}", type="PodDeleted"),
        NewEvent(stream=f"claim/{story.key}", type="ClaimDeleted"),
    ]
    if story.fails:
        return [("statefulsets/bench", gone)]
    used = [_of(f"claim/{story.key}", "ClaimChanged", {"status": {"dataState": "Dirty"}})]
    released = [_of(f"volume/{story.volume}", "VolumeChanged", {"status": {"phase": "Released"}})]
    back = {"patch": {"spec": {"claimRef": None}, "status": {"phase": "Available"}}, "reason": "wiped"}
    returned = [NewEvent(stream=f"volume/{story.volume}", type="VolumeChanged", data=back, cause=position + 4)]
    who = "cli/release/bench" if _by_hand(story) else "controller/bench"
    return [
        ("node-agent/bench", used),
        ("statefulsets/bench", gone),
        ("controller/bench", released),
        (who, returned),
    ]


def _by_hand(story: Story) -> bool:
    return story.number % BY_HAND_EVERY == 1


def _claim_ref(story: Story) -> dict[str, Any]:
    return {"kind": "PersistentVolumeClaim", "namespace": "bench", "name": story.id, "uid": f"uid-{story.id}"}


def _of(stream: str, type_: str, patch: dict[str, Any], binding: str | None = None) -> NewEvent:
    return NewEvent(stream=stream, type=type_, data={"patch": patch}, binding=binding)


def _step(story: Story, type_: str, data: dict[str, Any], cause: int | None = None) -> NewEvent:
    return NewEvent(stream=f"binding/{story.id}", type=type_, data=data, cause=cause, binding=story.id)


def _moved(story: Story, state: str, *, cause: int | None = None, reason: str | None = None) -> NewEvent:
    data = {"state": state, "open": state not in ("committed", "rolled-back")}
    return _step(story, "BindingMoved", data | ({} if reason is None else {"reason": reason}), cause)


def _leg(story: Story, state: str, *, cause: int | None = None, reason: str | None = None) -> NewEvent:
    data = {"leg": 0, "state": state, "open": state != "voided"}
    return _step(story, "LegMoved", data | ({} if reason is None else {"reason": reason}), cause)


def _freed(story: Story) -> list[NewEvent]:
    data = {"binding": story.id, "reason": STOLEN}
    return [
        NewEvent(stream=f"volume/{story.volume}", type="VolumeFreed", data=data, binding=story.id),
        NewEvent(stream=f"pod/{story.key}", type="PodFreed", data=data, binding=story.id),
    ]
