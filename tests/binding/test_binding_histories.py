"""Any history of plans, steps, foreign writes, crashes and zombies comes right in the end, on both engines."""

from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.support.armed_faults import armed, once
from tests.support.binding_scene import LEGS, furnished
from tests.support.binding_truths import notes
from tests.support.binding_world import LEASE, TIMEOUT, Where, World, joining
from tests.support.crash_points import CALLS, POINTS
from tests.support.extent import extended, extent
from tests.support.fresh_stores import fresh_store
from volsched.binding.rules.effects import LegOutcome, PodOutcome
from volsched.binding.rules.phases import LegPhase
from volsched.binding.rules.plan import PlannedLeg
from volsched.binding.rules.saga import record_leg, record_pod
from volsched.cluster.port import whole
from volsched.kube.manifest import claim_is_bound
from volsched.kube.meta import HOSTNAME, PROVISIONED_BY, ROLLBACK, SELECTED_NODE
from volsched.log import tables
from volsched.log.migrations import scratch_store
from volsched.runtime.clock import SECOND

pytestmark = extended

CLAIMS = st.sampled_from(list(LEGS))
PODS = st.sampled_from(["db/app", "db/other"])
WORK = st.sampled_from(["prebind", "annotate", "release", "bind_pod"])
TOKENS = st.integers(0, 1_000)


class Histories(RuleBasedStateMachine):
    """Plans, steps, foreign writes, crashes and zombies in any order; in the end everything has come right."""

    def __init__(self, server: str | None = None) -> None:
        """On SQLite, or on a PostgreSQL server."""
        super().__init__()
        self.store = fresh_store() if server is None else scratch_store(server)
        self.planned = 0

    @initialize(
        where=st.sampled_from(["local", "foreign"]),
        dynamic=st.sampled_from([None, *LEGS]),
        ends_well=st.booleans(),
    )
    def begin(self, where: Where, dynamic: str | None, ends_well: bool) -> None:
        self.world = furnished(World(self.store.__enter__(), where))
        self.ends_well = ends_well
        for worker in ("w1", "w2"):
            self.world.workers[worker] = replace(self.world.worker(worker), max_attempts=1_000)
        self.world.plan("b0", "db/app", {key: None if key == dynamic else name for key, name in LEGS.items()})

    def open_bindings(self) -> list[str]:
        return sorted(row["id"] for row in self.world.rows(tables.bindings) if row["open"])

    def claim_now(self, key: str) -> dict[str, Any] | None:
        """The claim, if a controller or an agent would touch it."""
        found = self.world.shown(f"claim/{key}")
        if found is None or "deletionTimestamp" in found["metadata"] or ROLLBACK in notes(found):
            return None
        return found

    def loose_volumes(self) -> list[str]:
        """Volumes that no claim is bound to, nor ever was."""
        found = whole(self.world.others.list("PersistentVolume")).objects
        bound = {
            it["spec"].get("volumeName") for it in whole(self.world.others.list("PersistentVolumeClaim")).objects
        }
        loose = [it for it in found if it["status"]["phase"] == "Available" and PROVISIONED_BY not in notes(it)]
        return sorted({it["metadata"]["name"] for it in loose} - bound)

    @rule(pod=PODS, keys=st.lists(CLAIMS, max_size=3, unique=True), token=TOKENS, retain=st.booleans())
    def plan(self, pod: str, keys: list[str], token: int, retain: bool) -> None:
        """On volumes that look free. That they are in another plan already is for the database to find."""
        self.planned += 1
        owners = {leg["claim"]: leg["binding"] for leg in self.world.rows(tables.binding_legs) if leg["open"]}
        legs: dict[str, str | PlannedLeg | None] = {}
        for number, key in enumerate(keys):
            free = [name for name in self.loose_volumes() if name not in {*legs.values(), *self.world.stolen}]
            pick = (token >> (2 * number)) % 4
            if pick == 0 and key in owners:
                legs[key] = joining(owners[key])
            else:
                legs[key] = None if pick == 1 or not free else free[(token + number) % len(free)]
        how = "retain" if retain else "rollback"
        self.world.attempt(self.world.planned(f"b{self.planned}", pod, legs, on_failure=how))

    @rule(queue=WORK, batch=st.sampled_from([1, 100]), worker=st.sampled_from(["w1", "w2"]))
    def a_worker_works(self, queue: str, batch: int, worker: str) -> None:
        self.world.workers[worker] = replace(self.world.worker(worker), batch=batch)
        self.world.step(queue, worker)

    @rule()
    def workers_work(self) -> None:
        self.world.run()

    @rule(queue=WORK, point=st.sampled_from([*POINTS, *CALLS]), times=st.sampled_from([1, 2, 3]))
    def crash(self, queue: str, point: str, times: int) -> None:
        self.world.crash(queue, point, times=times)

    @rule(queue=WORK, point=st.sampled_from(["executor.claimed", *CALLS]), token=TOKENS)
    def sleep_past_the_lease(self, queue: str, point: str, token: int) -> None:
        """A worker stops there, the binding may fail, others do the work, and then it goes on."""

        def meanwhile() -> None:
            self.world.let_leases_run_out()
            found = self.open_bindings()
            if found and token % 2:
                self.world.fail(found[token % len(found)])
            self.world.run("w2")

        with armed(once(point, meanwhile)):
            self.world.worker("w1").step(queue, self.world.now)
        self.world.sync()

    @rule(keys=st.sets(CLAIMS, min_size=1), data_state=st.sampled_from(["Clean", None]))
    def the_controller_binds(self, keys: set[str], data_state: str | None) -> None:
        for key in sorted(keys):
            found, volume = self.claim_now(key), self.world.pointing_at(key)
            if found is not None and not found["spec"].get("volumeName") and volume is not None:
                self.world.complete(key, volume, data_state=data_state)

    @rule(key=CLAIMS, host=st.sampled_from(["n1", "n1", "n2"]))
    def the_provisioner_provisions(self, key: str, host: str) -> None:
        found = self.claim_now(key)
        if found is not None and SELECTED_NODE in notes(found) and self.world.pointing_at(key) is None:
            self.world.provision(key, host=host, name=f"pvc-{found['metadata']['uid']}")

    @rule(key=CLAIMS)
    def an_agent_mounts(self, key: str) -> None:
        found = self.claim_now(key)
        if found is not None and claim_is_bound(found):
            self.world.soil(key)

    @rule(what=st.sampled_from(["steal", "reset", "touch", "claim", "pod", "label", "fail"]), token=TOKENS)
    def somebody_interferes(self, what: str, token: int) -> None:
        world, names, found = self.world, self.loose_volumes(), self.open_bindings()
        key, pod = list(LEGS)[token % 3], ("db/app", "db/other")[token % 2]
        if what in ("steal", "reset", "touch") and names:
            name = names[token % len(names)]
            if what == "steal":
                world.steal(name)
            elif what == "reset":
                world.reset(name)
            else:
                world.patch(f"volume/{name}", {"metadata": {"labels": {"at": str(token)}}})
        elif what == "claim":
            world.vanish(f"claim/{key}")
            world.claim(key.partition("/")[2])
        elif what == "pod":
            world.vanish(f"pod/{pod}")
            world.pod(pod.partition("/")[2])
        elif what == "label":
            world.patch("node/n1", {"metadata": {"labels": {HOSTNAME: "n1" if token % 2 else "renamed"}}})
        elif what == "fail" and found:
            world.fail(found[token % len(found)])

    @rule(by=st.sampled_from([SECOND, LEASE + 1, TIMEOUT]))
    def time_passes(self, by: int) -> None:
        self.world.now += by
        self.world.sweep()

    @invariant()
    def in_our_own_log_nothing_is_ever_out_of_place(self) -> None:
        """In a foreign cluster a late call may be, until it is seen."""
        world = getattr(self, "world", None)
        if world is not None and world.where == "local":
            assert world.violations() == []

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.everything_comes_to_its_end()
        finally:
            self.store.__exit__(None, None, None)

    def everything_comes_to_its_end(self) -> None:
        world = self.world
        if self.ends_well:
            world.let_leases_run_out()
            world.run()
            self.the_controller_binds(set(LEGS), "Clean")
            world.run()
        for _ in range(4):
            world.let_leases_run_out()
            world.now += TIMEOUT
            world.sweep()
            world.run()
        assert world.effects() == set()
        assert {row["state"] for row in world.rows(tables.bindings)} <= {"committed", "rolled-back"}
        assert world.violations() == []
        before = len(world.events())
        for row in world.rows(tables.bindings):
            for phase in LegPhase:
                world.say(row["id"], partial(record_leg, row["id"], 0, LegOutcome(phase=phase)))
            world.say(row["id"], partial(record_pod, row["id"], PodOutcome(bound=True)))
            world.fail(row["id"])
        assert len(world.events()) == before


def test_any_history_comes_right_on_sqlite() -> None:
    asked = settings(max_examples=extent(10, 25), stateful_step_count=25, deadline=None)
    run_state_machine_as_test(Histories, settings=asked)


def test_any_history_comes_right_on_postgres(postgres_server: str) -> None:
    asked = settings(max_examples=extent(3, 5), stateful_step_count=25, deadline=None)
    run_state_machine_as_test(lambda: Histories(postgres_server), settings=asked)
