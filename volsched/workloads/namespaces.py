"""The namespace controller: empties a namespace that is being deleted, then removes it.

Its objects are deleted as a user would delete them, with finalizers and grace periods: claims after their pods,
and volumes by their reclaim policies.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from volsched.kube.manifest import is_being_deleted, spec
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState, living, manifest_of
from volsched.log.events.streams import KIND_OF_NOUN, noun_and_key
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.runtime.world import World
from volsched.workloads.agenda import Agenda

BATCH = 16
MOST = 500
"""Maximum number of objects of one namespace deleted in one step."""
PREFIX = "namespace/"
KIND = "Namespace"
_NAMESPACED = frozenset(noun for noun, kind in KIND_OF_NOUN.items() if kind.namespaced)


@dataclass(slots=True)
class Namespaces:
    database: Database
    world: World
    owner: str
    grace: int | None = 0
    """The grace period of pods, as in `StatefulSets`."""
    _agenda: Agenda = field(default_factory=Agenda)
    _going: set[str] = field(default_factory=set)
    """Names of namespaces that are being emptied."""

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; nothing here waits
        for stream in streams:
            if stream.startswith(PREFIX):
                self._update_object(stream)
            elif self._going and (name := _namespace(stream)) in self._going:
                self._agenda.add((f"{PREFIX}{name}",))

    def step(self, now: int) -> int:
        with self._agenda.batch(now, BATCH) as namespaces:
            commands = [it for stream in namespaces for it in self._commands(stream, now)]
            execute(self.database, commands, now=now)
        return len(namespaces)

    def next_due(self) -> int | None:
        return self._agenda.next_due()

    def _update_object(self, stream: str) -> None:
        manifest, name = manifest_of(self.world.states, stream), noun_and_key(stream)[1]
        if manifest is not None and is_being_deleted(manifest):
            self._going.add(name)
            self._agenda.add((stream,))
        else:
            self._going.discard(name)

    def _commands(self, stream: str, now: int) -> Iterator[Command]:
        state, author = living(self.world.states, stream), door.controller(self.owner, now)
        if state is None or state.manifest is None or not is_being_deleted(state.manifest):
            return
        contents = list(self._contents(noun_and_key(stream)[1]))
        left = [(kind, found) for kind, found in contents if not is_being_deleted(found.manifest or {})]
        for kind, found in left[:MOST]:
            yield door.delete_unchanged(kind, found, author, grace=self.grace).command
        if len(left) > MOST:
            self._agenda.add((stream,))
        if not contents:
            kept = {name: value for name, value in spec(state.manifest).items() if name != "finalizers"}
            yield door.update(KIND, {**state.manifest, "spec": kept}, author, expected=state).command

    def _contents(self, namespace: str) -> Iterator[tuple[str, ObjectState]]:
        for stream, state in self.world.states.items():
            if not isinstance(state, ObjectState) or state.manifest is None:
                continue
            if _namespace(stream) == namespace:
                yield KIND_OF_NOUN[noun_and_key(stream)[0]].name, state


def _namespace(stream: str) -> str | None:
    noun, key = noun_and_key(stream)
    return key.partition("/")[0] if noun in _NAMESPACED else None
