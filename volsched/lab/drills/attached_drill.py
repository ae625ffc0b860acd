"""A drill on a foreign cluster: `volsched attach` as a real process on a strict API server, broken step by step.

Every step creates its own pods and leaves them to later processes. The score reads the cluster only
(`cluster_oracle`): agreement between our store and our process would prove nothing.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from volsched.binding.rules.saga import VOLUME_RETAINED
from volsched.kube.manifest import annotations, spec, status
from volsched.kube.meta import FENCE
from volsched.lab.drills.attached_processes import AttachedProcesses, DrillProcess, attached_processes
from volsched.lab.drills.attached_scenario import AttachedPlay, AttachedStep
from volsched.lab.drills.cluster_oracle import TOLD, ClusterSnapshot, at_rest, claims_of
from volsched.lab.drills.foreign_cluster import ForeignCluster, written_for
from volsched.lab.drills.process_drill import DrillError, Report
from volsched.lab.drills.report import DrillReport, count_double_binds, count_leaks
from volsched.runtime.clock import Patience

ASKED = (1, 2, 3, 4, 8, TOLD)
LOOK_SECONDS = 0.02
HTTP_SECONDS = 30.0
THEFT = "scheduler.planned:stop,executor.called*3:stop"
"""Fault points: before the first write, and again when the node is nominated and both volumes are requested."""
BACKED_UP = {"early": "executor.calling*4", "late": "executor.calling*6"}
"""Two nominations and three volumes are asked for, then claims to be provisioned."""
NOTHING_HIT = "no pod was waiting for its node at any fault, so this shows nothing of recovery"


def play_attached(play: AttachedPlay, *, report: Report = lambda _: None) -> DrillReport:
    """Raises DrillError if it cannot be played to its end."""
    with (
        tempfile.TemporaryDirectory(prefix="volsched-attached-") as directory,
        attached_processes(Path(directory)) as processes,
        httpx2.Client(base_url=processes.url, timeout=HTTP_SECONDS) as http,
    ):
        run = _AttachedRun(play, processes, ForeignCluster(http, play.nodes), report)
        run.perform()
        return run.scored()


@dataclass(slots=True)
class _AttachedRun:
    play: AttachedPlay
    processes: AttachedProcesses
    cluster: ForeignCluster
    report: Report
    settled: bool = False
    undone: set[str] = field(default_factory=set)
    """Pods that were deleted half bound."""
    fenced: set[str] = field(default_factory=set)
    taken_by_rivals: int = 0
    _snapshot: ClusterSnapshot = field(default_factory=lambda: ClusterSnapshot({}, {}, {}))
    _hit_at: dict[str, float] = field(default_factory=dict)
    """Pod → when a fault met it without a node."""
    _recovered_ms: dict[str, float] = field(default_factory=dict)
    _done: list[AttachedStep] = field(default_factory=list)
    _settled_ms: float = 0

    @property
    def _attached(self) -> DrillProcess:
        return self.processes.attached

    def perform(self) -> None:
        self.report("starting the API server of a cluster")
        self.processes.server.start()
        self._until(self._is_served, "the API server answers")
        self.cluster.begin()
        for number, step in enumerate(self.play.faults):
            self.report(str(step))
            CARRIED_OUT_ATTACHED[step.verb](self, step, f"s{number}")
            self._done.append(step)
        self.report("waiting until everything has settled")
        began = time.monotonic()
        self._ensure_running()
        try:
            self._until(self._is_settled, "everything has settled")
        except DrillError:
            # The oracle says what is left.
            return
        self.settled, self._settled_ms = True, 1000 * (time.monotonic() - began)

    def scored(self) -> DrillReport:
        events = self.cluster.events()
        wrong = at_rest(self._snapshot, self.cluster.history, events)
        if not self.settled:
            wrong.append(f"3: not everything has settled, and nothing moved for {self.play.patience:g} s")
        # The part of a note after the name of its binding.
        notes = (it.get("note", "") for it in events if it.get("reason") == VOLUME_RETAINED)
        retained = Counter(it.rpartition("was written: ")[2] for it in notes)
        return DrillReport(
            drill=self.play.name,
            about=self.play.about,
            faults=Counter(map(str, self._done)),
            in_flight=len(self._hit_at),
            resumed=len(self._recovered_ms),
            rolled_back=len(self.undone & self._hit_at.keys()),
            retained=retained,
            double_binds=count_double_binds(wrong),
            leaked=count_leaks(wrong),
            lost_pods=len(self._snapshot.waiting()),
            recovery_ms=[round(it, 1) for it in self._recovered_ms.values()],
            checked_invariants=ASKED,
            violations=wrong,
            inconclusive="" if self._hit_at else NOTHING_HIT,
            facts=self._facts(),
        )

    def _facts(self) -> Mapping[str, str]:
        pods, bound = (
            self._snapshot.ours(),
            sum(bool(spec(it).get("volumeName")) for it in self._snapshot.claims.values()),
        )
        return {
            "cluster": "strict API server, players of the PV controller and of a provisioner",
            "pods": f"{len(pods):,} of ours with a node; {bound:,} claims bound",
            "volumes that a rival got": f"{self.taken_by_rivals:,}",
            "objects fenced": f"{len(self.fenced):,}",
            "processes started": f"attached {self._attached.lives}x, API server {self.processes.server.lives}x",
            "all settled after the last fault": f"{self._settled_ms / 1000:,.1f} s" if self.settled else "no",
        }

    # --- steps, by their names in `lab.faults` ----------------------------------------------------------

    def kill(self, step: AttachedStep, batch: str) -> None:
        self._attached.kill()
        self._attached.start(f"{step.target}:kill")
        self._bring_pods(batch)
        self._until(lambda: self._attached.was_killed, f"the process comes to {step.target}")
        self._note_hit()

    def undo(self, step: AttachedStep, batch: str) -> None:
        """The PV controller is stopped, so row S2 can free every volume that was written."""
        self._calm()
        self._ensure_running()
        self.cluster.controls = False
        pods = self.cluster.bring_pods(batch, [1, 1])
        self._until(lambda: all(written_for(self._snapshot, it) for it in pods), "volumes are written")
        self._attached.kill()
        self._note_hit()
        for it in pods:
            self.cluster.delete_pod(it)
        self._attached.start(f"{step.target}:kill")
        self._until(lambda: self._attached.was_killed, f"the process comes to {step.target} while it undoes")
        self._attached.start()
        self._until(lambda: not self._snapshot.half_bound(), "every volume that was only written is free")
        self.undone |= set(pods)
        self.cluster.controls = True

    def cut(self, step: AttachedStep, batch: str) -> None:
        self._half_way(batch)
        self.processes.line.cut()
        self._pass(step.number)
        self.processes.line.mend()
        self._until(lambda: not self._snapshot.waiting(), "all pods have nodes")

    def restart(self, _: AttachedStep, batch: str) -> None:
        self._half_way(batch)
        self.processes.server.kill()
        self.processes.server.start()
        self._until(self._is_served, "the API server answers again")
        self._until(lambda: not self._snapshot.waiting(), "all pods have nodes")

    def misbehave(self, step: AttachedStep, batch: str) -> None:
        self._ensure_running()
        self.cluster.misbehave(step.target, step.number)
        self._bring_pods(batch)
        self._note_hit()
        self._until(lambda: not self._snapshot.waiting(), "all pods have nodes")

    def rival(self, step: AttachedStep, batch: str) -> None:
        self._ensure_running()
        self._bring_pods(batch)
        self.taken_by_rivals += self.cluster.compete(batch, step.number)
        self._note_hit()
        self._until(lambda: not self._snapshot.waiting(), "all pods have nodes")

    def steal(self, step: AttachedStep, batch: str) -> None:
        """Where the first volume is bound, the pod is pinned to it until an administrator brings a second one."""
        self._calm()
        self._attached.kill()
        self.cluster.controls = False
        self._attached.start(THEFT)
        here, there = self.cluster.node_names[:2]
        pod = self.cluster.bring_scarce_pod(batch, here)
        self._until(lambda: self._attached.is_stopped, "the process has a plan")
        self.taken_by_rivals += self.cluster.give_away(f"{batch}-large-{here}", f"{batch}-thief")
        self._attached.go_on()
        small = f"{batch}-small"
        self._until(lambda: small in written_for(self._snapshot, pod), "the first volume is written")
        first = written_for(self._snapshot, pod)[small]
        self._until(lambda: self._attached.is_stopped, "the second one is refused")
        self._note_hit()
        if step.target == "bound":
            self.cluster.controls = True
            self._until(lambda: first not in self._snapshot.half_bound(), "the first volume is bound")
            self._attached.go_on()
            self._until(lambda: self._is_reported(small), "the retained claim is reported")
            self.cluster.bring_scarce_volumes(f"{batch}-again", here)
        else:
            self._attached.go_on()
            self._until(lambda: first not in self._snapshot.half_bound(), "the first volume is free again")
            self.cluster.bring_scarce_volumes(batch, there)
            self.cluster.controls = True
        self._until(lambda: pod not in self._snapshot.waiting(), "the pod has a node")

    def restore(self, step: AttachedStep, batch: str) -> None:
        """The replaced process is only stopped, and continues when the restored one has settled everything."""
        self._calm()
        self._attached.kill()
        self.cluster.controls = False
        self._attached.start(f"{BACKED_UP[step.target]}:stop")
        stays, goes = self.cluster.bring_pods(batch, [2, 3])
        self._until(lambda: self._attached.is_stopped, "the process is half way")
        backup = self.processes.directory / f"{batch}.jsonl"
        self.processes.command("backup", str(backup), "--db", self.processes.store)
        zombie = self.processes.on_new_store()
        try:
            self._lose_since(goes, batch)
            self.processes.command("restore", str(backup), "--db", self.processes.store)
            self._attached.start()
            self._until(lambda: not self._left_by(goes), "what the pod left behind is free")
            self.cluster.controls = True
            self._until(lambda: stays not in self._snapshot.waiting(), "the other pod has a node")
            zombie.go_on()
            self._pass(2)
        finally:
            zombie.kill()

    def sleep(self, step: AttachedStep, batch: str) -> None:
        """A zombie: it is stopped past its lease, and continues when its work is done."""
        self._attached.kill()
        self._attached.start(f"{step.target}:stop")
        self._bring_pods(batch)
        self._until(lambda: self._attached.is_stopped, f"the process comes to {step.target}")
        self._note_hit()
        zombie = self.processes.on_same_store()
        try:
            self._attached.start()
            self._until(self._is_settled, "another process has done its work")
            zombie.go_on()
            self._pass(2)
        finally:
            zombie.kill()

    def _left_by(self, pod: str) -> list[str]:
        """Volumes that are still reserved for the pod's claims."""
        return [name for name, claim in self._snapshot.half_bound().items() if claim.startswith(f"{pod}-")]

    def _lose_since(self, pod: str, batch: str) -> None:
        """After the backup the pod and its first claim are deleted, and a rival gets the volume of that claim."""
        self._step()
        self._note_hit()
        written = written_for(self._snapshot, pod)
        claim = next(iter(written), claims_of(self._snapshot.pods[pod])[0])
        self.cluster.delete_pod(pod)
        self.cluster.delete_claim(claim)
        if claim in written:
            self.cluster.free_volume(written[claim])
            self.taken_by_rivals += self.cluster.give_away(written[claim], f"{batch}-thief")
        self.undone.add(pod)

    # --- waiting ----------------------------------------------------------------------------------------

    def _bring_pods(self, batch: str) -> None:
        counts = [self.play.claims[it % len(self.play.claims)] for it in range(self.play.pods)]
        self.cluster.bring_pods(batch, counts)

    def _half_way(self, batch: str) -> None:
        """Creates pods, and waits until a node is chosen for one of them."""
        self._ensure_running()
        self._bring_pods(batch)
        pods = {it for it in self._step_and_read().waiting() if it.startswith(f"{batch}-")}
        self._until(
            lambda: not pods <= set(self._snapshot.waiting()) or any(map(self._is_nominated, pods)),
            "a binding is under way",
        )
        self._note_hit()

    def _is_nominated(self, pod: str) -> bool:
        return bool(status(self._snapshot.pods.get(pod, {})).get("nominatedNodeName"))

    def _calm(self) -> None:
        """Waits until work of earlier steps is done, so that the next one meets only its own pods."""
        if self._step_and_read().waiting() or self._snapshot.half_bound():
            self._ensure_running()
            self._until(self._is_settled, "earlier pods have their nodes")

    def _ensure_running(self) -> None:
        if not self._attached.is_running:
            self._attached.start()

    def _note_hit(self) -> None:
        now = time.monotonic()
        for it in self._step_and_read().waiting():
            self._hit_at.setdefault(it, now)

    def _step_and_read(self) -> ClusterSnapshot:
        self._step()
        return self._snapshot

    def _step(self) -> None:
        self._snapshot = self.cluster.step()
        now = time.monotonic()
        for name, pod in self._snapshot.pods.items():
            if name in self._hit_at and name not in self._recovered_ms and spec(pod).get("nodeName"):
                self._recovered_ms[name] = 1000 * (now - self._hit_at[name])
        for objects in (self._snapshot.pods, self._snapshot.claims, self._snapshot.volumes):
            self.fenced |= {name for name, it in objects.items() if FENCE in annotations(it)}

    def _pass(self, seconds: float) -> None:
        """Waits, while the cluster keeps working."""
        until = time.monotonic() + seconds
        self._until(lambda: time.monotonic() >= until, "time passes")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        patience = Patience(self.play.patience)
        while True:
            # The server itself may be down.
            with suppress(httpx2.TransportError):
                self._step()
            if condition():
                return
            if patience.is_over(self._progress()):
                told = self._attached.complaint()
                raise DrillError(f"waited in vain until {what}, {self._unmoved}\n{told}".rstrip())
            time.sleep(LOOK_SECONDS)

    @property
    def _unmoved(self) -> str:
        return f"and nothing moved for {self.play.patience:g} s"

    def _progress(self) -> object:
        bound = sum(bool(spec(it).get("volumeName")) for it in self._snapshot.claims.values())
        return bound, len(self._snapshot.waiting()), len(self._snapshot.half_bound()), self._attached.lives

    def _is_served(self) -> bool:
        try:
            return bool(self.cluster.http.get("/readyz").status_code == 200)
        except httpx2.TransportError:
            return False

    def _is_reported(self, claim: str) -> bool:
        told = {it["regarding"]["name"] for it in self.cluster.events() if it.get("reason") == VOLUME_RETAINED}
        return claim in told

    def _is_settled(self) -> bool:
        return not self._snapshot.waiting() and not self._snapshot.half_bound()


CARRIED_OUT_ATTACHED: Mapping[str, Callable[[_AttachedRun, AttachedStep, str], None]] = {
    "kill": _AttachedRun.kill,
    "undo": _AttachedRun.undo,
    "cut": _AttachedRun.cut,
    "restart": _AttachedRun.restart,
    "misbehave": _AttachedRun.misbehave,
    "rival": _AttachedRun.rival,
    "steal": _AttachedRun.steal,
    "restore": _AttachedRun.restore,
    "sleep": _AttachedRun.sleep,
}
