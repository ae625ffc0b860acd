"""volsched inside another program: `from volsched import Engine`.

    with Engine.open("sqlite:///volsched.db", migrate=True) as engine:
        engine.apply(open("cluster.yaml").read())
        engine.run_until_idle(timeout=30)
        print(engine.get("pod", "shop/db-0")["spec"]["nodeName"])

An engine is used by one thread. Several may work on one store, in one process or in many. For the rules alone,
without any store, see `volsched.core`.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from volsched.binding.rules.phases import Phase
from volsched.kube.manifest_reader import UnknownFields, load_manifests
from volsched.kube.meta import DEFAULT_NAMESPACE
from volsched.log.database import Database
from volsched.log.events.streams import KIND_OF_NOUN, Named, kind_called
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.decision_audit import bindings_page
from volsched.log.reads.views import Now
from volsched.log.store import migrate_store, open_store
from volsched.log.transaction import execute
from volsched.objects.rules.object_events import ObjectError
from volsched.objects.submission import Submitter, Target, Verb
from volsched.provisioning.host import built_in
from volsched.provisioning.protocol import Provisioner
from volsched.questions.context import QuestionContext
from volsched.questions.get.documents import as_manifest
from volsched.questions.registry import ask, model_of, question
from volsched.questions.source import Sight, explanation
from volsched.runtime.clock import SECOND, Clock, system_clock
from volsched.runtime.runner import run_until_idle
from volsched.runtime.settings import Settings, configuration, database_url, read_settings
from volsched.runtime.system import Bell, ProcessRole, System, embedded
from volsched.scheduling.pod_reservations import cancelling
from volsched.scheduling.queue.entry import ALL
from volsched.workloads.controllers import Upkeep
from volsched.workloads.garbage_collector import Keep

SHORT_ID = 12
PAGE = 1_000
Manifest = dict[str, Any]
Manifests = str | bytes | Mapping[str, Any] | Iterable[Mapping[str, Any]]
"""YAML or JSON text as kubectl takes it, or manifests as Python has them."""


@dataclass(frozen=True, slots=True)
class Change:
    """The result for one object of `apply`."""

    kind: str
    key: str
    done: str
    """`created`, `configured` or `unchanged`."""


class RefusedError(Exception):
    """Some objects were refused; `done` are the others, which are written. Each refusal says what to do."""

    def __init__(self, refusals: list[str], done: list[Change]) -> None:
        super().__init__("\n".join(refusals))
        self.refusals = refusals
        self.done = done


class Engine:
    """A store, and the components that work on it here. `open` creates an engine; close it, or use `with`."""

    def __init__(
        self,
        database: Database,
        *,
        actor: str = "library",
        clock: Clock = system_clock,
        provisioners: Iterable[Provisioner] | None = None,
    ) -> None:
        self._database = database
        self._actor = actor
        self._clock = clock
        self._provisioners = None if provisioners is None else tuple(provisioners)
        self._system: System | None = None

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        migrate: bool = False,
        actor: str = "library",
        provisioners: Iterable[Provisioner] | None = None,
    ) -> Self:
        """The store at a URL or file; without one, where `VOLSCHED_DATABASE_URL` says.

        `migrate` creates the store, or brings its tables up to date; without it, StoreError where that is missing.
        `actor` is the author of our changes in the log. `provisioners` replace those that come with volsched.
        """
        where = database_url(url)
        if migrate:
            migrate_store(where)
        return cls(open_store(where), actor=actor, provisioners=provisioners)

    def close(self) -> None:
        """Release the leases, so that other processes need not wait for them. Nothing is lost without it."""
        if self._system is not None:
            self._system.close()
            self._system = None
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    # --- objects ----------------------------------------------------------------------------------------

    def apply(self, manifests: Manifests, *, reason: str | None = None) -> list[Change]:
        """Create the objects, or change those that are there to what the manifests say.

        ManifestError where the input is wrong, and then nothing is written. RefusedError where the store refuses
        objects: each is written for itself, and the others are.
        """
        loaded = load_manifests(_text(manifests), source="manifests", unknown=UnknownFields.OF_ALL)
        done: list[Change] = []
        refusals: list[str] = []
        for entry, outcome in self._submitter(reason).submit(loaded, Verb.APPLY):
            if isinstance(outcome, Exception):
                refusals.append(str(outcome))
            else:
                done.append(Change(entry.kind.name, entry.key, outcome.result["applied"]))
        if refusals:
            raise RefusedError(refusals, done)
        return done

    def delete(self, kind: str, key: str, *, reason: str | None = None) -> bool:
        """Delete an object; False: it is only marked for deletion, and is removed with its last finalizer.

        ObjectError where there is no such object.
        """
        named, wanted = _named(kind, key)
        if not named.is_object:
            raise ValueError(f"{named.plural} are history and cannot be deleted")
        (outcome,) = self._submitter(reason).delete([Target(KIND_OF_NOUN[named.noun], wanted)])
        if isinstance(outcome, Exception):
            raise outcome
        return bool(outcome.result["gone"])

    def get(self, kind: str, key: str) -> Manifest | None:
        """An object, binding or attempt by any name of its kind (`pv`, `PersistentVolume`); None if there is none.

        The key is `name` or `namespace/name`; a bare name is in `default`.
        """
        named, wanted = _named(kind, key)
        with self._present() as view:
            found = view.one(named.noun, wanted)
        return None if found is None else as_manifest(named.noun, wanted, found)

    def objects(self, kind: str) -> list[Manifest]:
        """All objects of a kind, in every namespace."""
        named = kind_called(kind)
        with self._present() as view:
            return [as_manifest(named.noun, key, state) for key, state in view.every(named.noun)]

    # --- scheduling -------------------------------------------------------------------------------------

    def run_until_idle(self, *, timeout: float = 60.0) -> bool:
        """Schedule, bind and reconcile until no work is left; False if work was left at the timeout (in seconds).

        It waits for back-offs and deadlines, but not for pods that fit nowhere.
        """
        if self._system is None:
            self._system = self._new_system()
        try:
            return run_until_idle(self._system, clock=self._clock, timeout=timeout)
        finally:
            # Releases the controller's lease: another process may lead while this program does other things.
            self._system.close()

    def delete_pod_bindings(self, pod: str, *, reason: str | None = None) -> bool:
        """Cancel the reservation of a pod (`namespace/name`): its volumes and capacity are released. False if it
        has none.

        For schedulers that give up on a pod. It never fails: an unknown pod has no reservation, and a binding that
        is being written continues, because that needs a rollback (delete the pod for it).
        """
        key = _named("pod", pod)[1]
        with self._database.read() as connection:
            held = bindings_page(connection, pod=key, state=Phase.RESERVED, limit=1)
        if not held:
            return False
        ((binding, _),) = held
        why = reason or "the pod's bindings were deleted"
        command = cancelling(self._database, binding, reason=why, actor=self._actor)
        (outcome,) = execute(self._database, [command], now=self._clock())
        if isinstance(outcome, Exception):
            raise outcome
        return outcome.events > 0

    def explain(self, pod: str, *, node: str | None = None) -> dict[str, Any]:
        """Why a pod (`namespace/name`) can or cannot be placed now, what would help, and its last attempt.

        The document of `volsched explain pod -o json`; `node` asks about one node. LookupError where there is no
        such pod or node.
        """
        key = _named("pod", pod)[1]
        system = self._new_system() if self._system is None else self._system
        system.catch_up(self._clock())
        seen = Sight(system.picture.index, self._database, system.picture)
        return explanation(seen, key, node=node, now=self._clock())

    def history(self, ref: str) -> list[dict[str, Any]]:
        """Everything that happened to `KIND/KEY`, such as `pv/disk-7` or `pod/shop/db-0`, the oldest first.

        Each item says when, who, what and why, and which event it followed from. LookupError where nothing is
        known.
        """
        kind, _, key = ref.partition("/")
        named, wanted = _named(kind, key)
        namespace, _, name = wanted.rpartition("/") if named.is_object and named.namespaced else ("", "", wanted)
        items: list[dict[str, Any]] = []
        after: str | None = None
        while True:
            page = self.ask("history", kind=kind, name=name, namespace=namespace or None, after=after, limit=PAGE)
            items += page["items"]
            after = page.get("metadata", {}).get("continue")
            if after is None:
                return items

    def ask(self, name: str, /, **parameters: Any) -> dict[str, Any]:
        """Any question of the command line by its words, as `audit rollbacks`, with `since="1d"` for `--since 1d`.

        The answer is the document that `-o json` prints. LookupError where there is no such question, or nothing
        of the name that is asked about; ValueError where it cannot be asked like that.
        """
        wanted = question(name)
        context = QuestionContext(store=self._database, now=self._clock())
        return ask(wanted, context, model_of(wanted)(**parameters))

    # --- inside -----------------------------------------------------------------------------------------

    def _new_system(self) -> System:
        return whole_system(self._database, clock=self._clock, provisioners=self._provisioners)

    def _submitter(self, reason: str | None) -> Submitter:
        return Submitter(
            database=self._database,
            clock=self._clock,
            actor=self._actor,
            reason=reason,
            zonal_upgrade=not Settings().disable_zonal_upgrade,
        )

    @contextmanager
    def _present(self) -> Iterator[Now]:
        with self._database.read() as connection:
            yield view_at_head(connection)


def whole_system(
    database: Database,
    *,
    clock: Clock = system_clock,
    provisioners: Iterable[Provisioner] | None = None,
    config: Path | None = None,
    node_agent: bool = False,
    other_agents: bool = False,
    without: Collection[Upkeep] = (),
    bell: Bell | None = None,
    roles: Collection[ProcessRole] = frozenset(ProcessRole),
    names: tuple[str, ...] | None = None,
) -> System:
    """All components that work on a store, in one process, as the settings say; not started yet.

    `config` is the scheduler's configuration file, where it is not the settings'. `node_agent` simulates the
    nodes too: volumes are attached and pods run; `other_agents`: the nodes have agents of their own, whose reports
    about pods are awaited. `without` leaves small controllers out. With a `bell`, workers in other
    processes carry the effects out. `names`: the schedulerNames whose pods are placed, where not all of ours.
    """
    settings = read_settings()
    given = (
        built_in(host_path_root=settings.host_path_root, store=database.place)
        if provisioners is None
        else provisioners
    )
    return embedded(
        database,
        owner=uuid4().hex[:SHORT_ID],
        clock=clock,
        new_id=lambda: uuid4().hex[:SHORT_ID],
        new_uid=lambda: str(uuid4()),
        without={*without, *((Upkeep.ZONAL_UPGRADE,) if settings.disable_zonal_upgrade else ())},
        provisioners=tuple(given),
        node_agent=node_agent,
        other_agents=other_agents,
        configuration=configuration(config),
        share=settings.scheduler_share or (None if set(roles) == {ProcessRole.SCHEDULER} else ALL),
        keep=Keep(
            notices=int(settings.event_ttl_seconds * SECOND),
            commands=int(settings.command_ttl_seconds * SECOND),
            done=int(settings.done_ttl_seconds * SECOND),
        ),
        bell=bell,
        takes_over=True,
        roles=roles,
        lease=settings.effect_lease(),
        names=names,
        stepwise=settings.stepwise_binding,
    )


def _named(kind: str, key: str) -> tuple[Named, str]:
    named = kind_called(kind)
    bare = named.is_object and named.namespaced and "/" not in key
    return named, f"{DEFAULT_NAMESPACE}/{key}" if bare else key


def _text(manifests: Manifests) -> bytes:
    if isinstance(manifests, bytes):
        return manifests
    if isinstance(manifests, str):
        return manifests.encode()
    several = [manifests] if isinstance(manifests, Mapping) else manifests
    return "\n".join(json.dumps(it) for it in several).encode()


__all__ = ["Change", "Engine", "ObjectError", "RefusedError"]
