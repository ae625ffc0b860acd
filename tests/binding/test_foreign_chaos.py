"""Whatever goes wrong between us and a foreign cluster: every binding ends, and nothing of ours is left behind.

Bindings are planned one after the other for one pod, over a line that loses, delays and refuses calls, while the
PV controller, users and administrators write as they like; then the line heals and time passes.
"""

from dataclasses import replace
from random import Random

import pytest

from tests.support.foreign import change, simulated
from tests.support.foreign_scene import CLAIM, LEASE, NODE, POD, TIMEOUT, VOLUME, Scene
from tests.support.port_manifests import pod
from volsched.binding.executor import QUEUES, Executor
from volsched.binding.rules.late_writes import stamp_of
from volsched.binding.rules.phases import LegPhase
from volsched.cluster.foreign_api import ABLE, ForeignApi
from volsched.cluster.mirror import Mirror
from volsched.cluster.port import KUBERNETES, Capabilities, ClusterError, Manifest, whole
from volsched.cluster.simulated import ClusterFaults
from volsched.kube.meta import BIND_COMPLETED, HOSTNAME, ROLLBACK, SELECTED_NODE
from volsched.kube.patches import merged
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.runtime.clock import SECOND

BAD_LINE = ClusterFaults(
    lost=0.08, failed=0.08, slow=0.25, conflict=0.08, slow_for=None, lag=1, repeated=0.2, expired=0.02
)
LEGS = ({"data": "pv-1"}, {"data": "pv-1", "logs": "pv-2"}, {"data": "pv-2", "logs": None}, {"data": None})


class Controller:
    """A PV controller in two writes: it calls the volume bound, and later writes the claim as it had read it."""

    def __init__(self, api: ForeignApi, random: Random) -> None:
        self.api, self.random = api, random
        self.begun: list[Manifest] = []

    def begin(self) -> None:
        for found in whole(self.api.list(VOLUME)).objects:
            reference = found["spec"].get("claimRef") or {}
            held = self.api.get(CLAIM, f"db/{reference.get('name')}")
            if held is None or held["metadata"]["uid"] != reference.get("uid") or held["spec"].get("volumeName"):
                continue
            if self.api.capabilities.can_unbind and ROLLBACK in (held["metadata"].get("annotations") or {}):
                continue
            name = found["metadata"]["name"]
            change(self.api, VOLUME, name, {"status": {"phase": "Bound"}}, status=True)
            bound = {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": name}}
            self.begun.append(merged(held, bound))

    def finish(self) -> None:
        if self.begun:
            wanted = self.begun.pop(self.random.randrange(len(self.begun)))
            written = self.api.update(CLAIM, wanted)
            state = {"phase": "Bound", "dataState": self.random.choice(("Clean", "Clean", "Dirty"))}
            self.api.update(CLAIM, merged(written, {"status": state}), status=True)


class Chaos:
    def __init__(self, database: Database, seed: int, capabilities: Capabilities) -> None:
        self.random = Random(seed)
        self.haste = self.random.choice((0, 1, 8))
        """How often a binding is given up before its time, which is when writes come too late."""
        self.scene = Scene(
            database, simulated(seed=seed, capabilities=capabilities), {"data": "pv-1", "logs": None}
        )
        for name in ("pv-2", "pv-3"):
            self.scene.add_volume(name)
        self.controller = Controller(self.scene.api, self.random)
        self.workers = [
            Executor(database, self.scene.cluster, f"worker-{it}", LEASE, max_attempts=50) for it in (1, 2)
        ]
        self.scene.executor = self.workers[0]
        self.planned: list[str] = []
        self.scene.observe()
        self.scene.cluster.faults = self.random.choice((BAD_LINE, replace(BAD_LINE, slow=0.05)))

    def act(self) -> None:
        scene, random = self.scene, self.random
        acts = {
            "work": 40, "observe": 20, "plan": 12, "begin": 3, "finish": 6, "wait": 12, "land": 4,
            "deadline": self.haste, "restart": 1, "take": 1, "label": 1, "delete pod": 1, "create pod": 3,
            "provision": 2, "free": 1,
        }  # fmt: skip
        try:
            match random.choices(list(acts), list(acts.values()))[0]:
                case "work":
                    worker = random.choice(self.workers)
                    for queue in QUEUES:
                        worker.step(queue, scene.now)
                case "observe":
                    scene.mirror.step(scene.now)
                case "plan":
                    self.plan()
                case "begin":
                    self.controller.begin()
                case "finish":
                    self.controller.finish()
                case "wait":
                    scene.now += random.choice((1, 10, 40)) * SECOND
                case "land":
                    scene.cluster.land()
                case "deadline" if self.planned:
                    scene.pass_deadline(self.planned[-1])
                case "restart":
                    scene.mirror = Mirror(scene.database, scene.cluster)
                case "take" if (name := self.loose_volume()) is not None:
                    scene.take(name, "theirs", uid="uid-theirs")
                case "label":
                    change(
                        scene.api,
                        NODE,
                        "n1",
                        {"metadata": {"labels": {HOSTNAME: random.choice(("n1", "n1", "x"))}}},
                    )
                case "delete pod":
                    scene.api.delete(POD, "db/app")
                case "create pod":
                    scene.api.create(POD, pod("app", "data", "logs"))
                case "provision":
                    self.provision()
                case "free" if (name := self.loose_volume()) is not None:
                    change(scene.api, VOLUME, name, {"spec": {"claimRef": None}})
        except ClusterError:
            return

    def loose_volume(self) -> str | None:
        """One that others may write without taking it away from a claim that is bound, or about to be."""
        name = self.random.choice(("pv-1", "pv-2", "pv-3"))
        found = self.scene.api.get(VOLUME, name) or {}
        return None if found["status"]["phase"] == "Bound" else name

    def plan(self) -> None:
        """As a scheduler would: on what the mirror shows, never with a volume that is another claim's there."""
        if self.planned and self.scene.binding(self.planned[-1]).open:
            return
        legs = self.random.choice(LEGS)
        if all(self.could_serve(name, volume) for name, volume in legs.items()) and self.scene.has("pod/db/app"):
            self.planned.append(f"b{len(self.planned) + 1}")
            self.scene.plan(self.planned[-1], legs)

    def could_serve(self, name: str, volume: str | None) -> bool:
        held = self.scene.view(f"claim/db/{name}")
        if held["spec"].get("volumeName"):
            return False
        reference = {} if volume is None else self.scene.view(f"volume/{volume}")["spec"].get("claimRef") or {}
        return reference.get("uid", held["metadata"]["uid"]) == held["metadata"]["uid"]

    def provision(self) -> None:
        for name in ("data", "logs"):
            found = self.scene.api.get(CLAIM, f"db/{name}") or {}
            marks = found["metadata"].get("annotations") or {}
            if SELECTED_NODE in marks and not found["spec"].get("volumeName") and ROLLBACK not in marks:
                self.scene.start_provisioning(name)
                if self.random.random() < 0.7:
                    self.scene.provision(name)

    def come_to_rest(self) -> None:
        scene = self.scene
        scene.cluster.faults = ClusterFaults()
        scene.cluster.land()
        scene.observe()
        for _ in range(2):
            if self.planned and scene.binding(self.planned[-1]).open:
                scene.now += TIMEOUT
                scene.pass_deadline(self.planned[-1])
            scene.now += TIMEOUT
            scene.settle(40)

    def check(self) -> None:
        scene = self.scene
        assert [it for it in self.planned if scene.binding(it).open] == []
        assert scene.queued() == []
        for found in whole(scene.api.list(VOLUME)).objects:
            binding, reference = stamp_of(found), found["spec"].get("claimRef")
            if binding is not None and reference is not None:
                volume = found["metadata"]["name"]
                legs = [it for it in scene.binding(binding).legs if it.volume == volume]
                mine = reference["uid"] in [it.claim_uid for it in legs]
                assert not mine or legs[0].state in (LegPhase.BOUND, LegPhase.RETAINED), f"{volume} is a stray"
        for found in whole(scene.api.list(CLAIM)).objects:
            self.check_claim(found)
        assert verify(scene.database).ok

    def check_claim(self, held: Manifest) -> None:
        marks = held["metadata"].get("annotations") or {}
        assert ROLLBACK not in marks, "a release has left its mark on"
        if BIND_COMPLETED in marks:
            volume = self.scene.api.get(VOLUME, held["spec"]["volumeName"]) or {}
            reference = volume["spec"].get("claimRef") or {}
            assert reference.get("uid") == held["metadata"]["uid"], "a claim has lost its volume"
        elif SELECTED_NODE in marks and stamp_of(held) is not None:
            binding = self.scene.binding(stamp_of(held) or "")
            legs = [it for it in binding.legs if it.dynamic and it.claim == f"db/{held['metadata']['name']}"]
            assert legs[0].state in (LegPhase.BOUND, LegPhase.RETAINED), "a node stays selected for nobody"


@pytest.mark.parametrize("seed", range(8))
def test_every_binding_ends_and_nothing_of_ours_is_left_behind(database: Database, seed: int) -> None:
    chaos = Chaos(database, seed, ABLE if seed % 2 else KUBERNETES)
    for _ in range(120):
        chaos.act()
    chaos.come_to_rest()
    chaos.check()
