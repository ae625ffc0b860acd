"""Drills on a foreign cluster: a real process is killed on a strict API server, and the cluster alone is asked.

One short drill here, all of them by `make drills`.
"""

from typing import Any

import pytest

from tests.support.extent import FULL
from volsched.kube.meta import BINDING_STAMP
from volsched.lab import manifests
from volsched.lab.drills.attached_drill import CARRIED_OUT_ATTACHED, play_attached
from volsched.lab.drills.attached_scenario import AttachedPlay, attached_play, read_attached_step
from volsched.lab.drills.cluster_oracle import ClusterHistory, ClusterSnapshot, at_rest
from volsched.lab.drills.foreign_cluster import pod_object
from volsched.lab.drills.scenario import ATTACHED, DrillScenario, ScenarioError, process_drills
from volsched.lab.faults import ATTACHED_STEPS
from volsched.runtime.fault_points import POINTS

Manifest = dict[str, Any]
SHORT = AttachedPlay(name="short", pods=2, claims=(1, 2), faults=(read_attached_step("kill executor.called*2"),))
PLAYS = {it.name: attached_play(it) for it in process_drills(ATTACHED)} if FULL else {SHORT.name: SHORT}


@pytest.mark.parametrize("name", PLAYS)
def test_the_cluster_shows_no_harm_whatever_is_broken(name: str) -> None:
    report = play_attached(PLAYS[name])
    assert report.violations == []
    assert (report.double_binds, report.leaked, report.lost_pods, report.passed) == (0, 0, 0, True)
    assert report.resumed + report.rolled_back == report.in_flight > 0


def test_the_killed_points_are_all_that_an_attached_process_comes_to() -> None:
    """The PV controller's are the cluster's own; the sweep moves what nothing else moved, and here nothing is; and
    where nobody else writes to the store, everything is decided under the lock."""
    killed = {
        step.target.partition("*")[0]
        for it in process_drills(ATTACHED)
        for step in attached_play(it).faults
        if step.verb in ("kill", "undo")
    }
    assert POINTS.keys() - killed == {"commit.drafted", "controller.decided", "controller.written", "sweep.found"}


def test_every_step_on_a_foreign_cluster_is_carried_out_and_no_other() -> None:
    assert CARRIED_OUT_ATTACHED.keys() == ATTACHED_STEPS.keys()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"faults": ["explode"]}, '"explode" is no step; there are kill, undo, cut'),
        ({"faults": ["kill"]}, r"write kill POINT\[\*N\]"),
        ({"faults": ["kill nowhere"]}, "there is no place nowhere; there are commit.after"),
        ({"faults": ["kill controller.decided"]}, "there is no place controller.decided"),
        ({"faults": ["kill executor.called*0"]}, r"write executor.called\*N"),
        ({"faults": ["cut soon"]}, "a whole number from 1 to 600"),
        ({"faults": ["steal all"]}, "steal is for one of written, bound"),
        ({"faults": ["misbehave lost-answer"]}, "write misbehave FAULT N"),
        ({"faults": []}, "a list of steps"),
        ({"faults": ["cut 1"], "engines": "stack"}, "with.engines is unknown; there are load, faults, patience"),
        ({"faults": ["cut 1"], "load": {"pods": 0}}, "with.load.pods: it must be a whole number"),
        ({"faults": ["cut 1"], "load": {"per_second": 1}}, "with.load.per_second is unknown"),
    ],
)
def test_a_scenario_that_cannot_be_played_names_the_field_and_what_is_possible(given: Manifest, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        attached_play(DrillScenario(name="mine", kind=ATTACHED, settings=given))


# What the oracle finds ---------------------------------------------------------------------------------------


def with_uid(manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "uid": f"uid-{manifest['metadata']['name']}"}}


def kept_for(volume: Manifest, claim: str, *, phase: str = "Available") -> Manifest:
    reference = {"name": claim, "uid": f"uid-{claim}"}
    marks = {**volume["metadata"], "annotations": {BINDING_STAMP: "b1"}}
    spec = {**volume["spec"], "claimRef": reference}
    return {**volume, "metadata": marks, "spec": spec, "status": {"phase": phase}}


def bound(claim: Manifest, volume: str) -> Manifest:
    return {**claim, "spec": {**claim["spec"], "volumeName": volume}, "status": {"phase": "Bound"}}


def placed(pod: Manifest, node: str) -> Manifest:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


VOLUME, OTHER = (manifests.local_volume(name, "2Gi", host) for name, host in (("v", "n1"), ("w", "n2")))
CLAIM, POD = with_uid(manifests.claim("c", "1Gi")), with_uid(pod_object("p", ["c"]))
FINE = (placed(POD, "n1"), bound(CLAIM, "v"), kept_for(VOLUME, "c", phase="Bound"))


def look_of(*manifests: Manifest) -> ClusterSnapshot:
    def of(kind: str) -> dict[str, Manifest]:
        return {it["metadata"]["name"]: it for it in manifests if it["kind"] == kind}

    return ClusterSnapshot(of("Pod"), of("PersistentVolumeClaim"), of("PersistentVolume"))


def volume_notice(claim: str) -> Manifest:
    return {"reason": "VolumeRetained", "regarding": {"name": claim}}


@pytest.mark.parametrize(
    ("looks", "events", "wrong"),
    [
        ([FINE], [], []),
        (
            [FINE, (placed(POD, "n2"), *FINE[1:])],
            [],
            ["1: pod p was on n1 and is on n2", "8: pod p is on n2, which"],
        ),
        ([FINE, (POD, *FINE[1:])], [], ["1: pod p was on n1 and has no node", "3: pod p has no node"]),
        (
            [(*FINE[:2], kept_for(VOLUME, "d"))],
            [],
            ["1: volume v is claim c's and belongs to d too", "2: volume v"],
        ),
        ([(*FINE[:2], VOLUME)], [], ["4: volume v was taken from claim c"]),
        ([(placed(POD, "n1"), CLAIM)], [], ["8: pod p is on n1, and its claim c has no volume"]),
        (
            [(CLAIM, kept_for(VOLUME, "c"))],
            [],
            ["2: volume v is kept for claim c, which does not have it, which row"],
        ),
        ([(kept_for(VOLUME, "c"),)], [], ["2: volume v is kept for claim c"]),
        ([(*FINE, kept_for(OTHER, "c"))], [], ["2: volume w is kept for claim c"]),
        ([(POD, CLAIM)], [], ["3: pod p has no node"]),
        ([FINE[1:]], [], ["15: claim c kept its volume after a rollback"]),
        ([FINE[1:]], [volume_notice("c")], []),
        ([FINE, FINE[1:]], [], []),
    ],
)
def test_the_cluster_alone_shows_what_is_wrong(
    looks: list[tuple[Manifest, ...]], events: list[Manifest], wrong: list[str]
) -> None:
    history = ClusterHistory()
    for it in looks:
        history.see(look_of(*it))
    found = at_rest(look_of(*looks[-1]), history, events)
    assert [it.startswith(start) for it, start in zip(found, wrong, strict=True)] == [True] * len(wrong), found
