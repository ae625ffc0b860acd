"""What is decided counts from the decision on: the answer while a leg is in flight is the one once it is bound."""

from dataclasses import dataclass, replace

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.scheduling.index_streams import Stream, World
from tests.support.extent import extended, extent
from tests.support.index_outcomes import outcome
from tests.support.objects import on_node, ref_to, volume
from volsched.kube.meta import BIND_COMPLETED
from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Pod
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.pod_claims import claim_uses, selected_node
from volsched.scheduling.rules.profile import VOLSCHED, Profile
from volsched.scheduling.rules.snapshot import Snapshot

pytestmark = extended

TURNS = 5
TERSE = replace(VOLSCHED, explains=False)
AS_WRITTEN = replace(TERSE, counts_in_flight=False)
"""The defect put back: a claim counts as bound only once it says so itself."""


@dataclass
class Flight:
    """A cluster in which several pods were decided and nothing of that is written to the end."""

    stream: Stream
    made: dict[str, str]
    """Claims that a new volume is being made for, with the node that it is for."""

    @property
    def now(self) -> World:
        return self.stream.world

    @property
    def bound(self) -> World:
        """The same, when the PV controller and the provisioners have done their part."""
        world = World(dict(self.now.objects), dict(self.now.reserved), dict(self.now.promised))
        for claim in self.now.of(Claim):
            given = next((it for it in self.now.of(Volume) if _was_given(it, claim, self.now.snapshot)), None)
            if given is None and claim.key in self.made:
                given = _made_for(claim, self.made[claim.key], self.now.snapshot)
            if given is not None and not claim.volume_name:
                annotations = {**claim.meta.annotations, BIND_COMPLETED: "yes"}
                meta = replace(claim.meta, annotations=annotations)
                world.objects[Claim, claim.key] = replace(claim, volume_name=given.name, meta=meta, phase="Bound")
                world.objects[Volume, given.name] = replace(given, phase="Bound")
        return world


def flight(seed: int) -> Flight:
    stream = Stream(seed)
    made: dict[str, str] = {}
    for turn in range(TURNS):
        wanting = stream.ask(turn)
        found = attempt(stream.world.snapshot, wanting, profile=TERSE)
        stream.assume(wanting, found, TERSE, placed=True)
        if found.chosen is not None:
            made |= {it.claim.key: found.chosen.node for it in found.chosen.answer.provisions}
    return Flight(stream, made)


def _was_given(volume: Volume, claim: Claim, snapshot: Snapshot) -> bool:
    """The view of a profile is not asked here: what it shows is what is being tested."""
    held = snapshot.classes.get(claim.class_name)
    ref, delayed = volume.claim_ref, held is not None and held.volume_binding_mode == "WaitForFirstConsumer"
    named = ref is not None and (ref.namespace, ref.name, ref.uid) == (
        claim.meta.namespace, claim.name, claim.meta.uid,
    )  # fmt: skip
    return (
        named
        and delayed
        and not volume.meta.being_deleted
        and volume.size.nano >= claim.size.nano
        and volume.mode == claim.mode
    )


def _made_for(claim: Claim, node: str, snapshot: Snapshot) -> Volume:
    disk = {"driver": snapshot.classes[claim.class_name].provisioner, "volumeHandle": f"made-{claim.name}"}
    return volume(
        f"made-{claim.name}", str(claim.size), cls=claim.class_name, modes=claim.access_modes, csi=disk,
        nodeAffinity=on_node(node), claim_ref=ref_to(claim),
    )  # fmt: skip


def answers_agree(seed: int, profile: Profile) -> None:
    flying = flight(seed)
    now, then = flying.now, flying.bound
    indexes = [world.lay_over(Index(world.objects.values(), profile=profile)) for world in (now, then)]
    for number in range(4):
        pod = flying.stream.wanting(f"next{number}")
        before, after = (attempt(world.snapshot, pod, profile=profile) for world in (now, then))
        fitting = [{it.node for it in made.verdicts if it.status.passed} for made in (before, after)]
        assert fitting[0] == fitting[1], f"seed {seed}, {pod.key}: {before.status} / {after.status}"
        decided, later = (index.decide(pod) for index in indexes)
        assert (decided.chosen is None) == (later.chosen is None), f"seed {seed}, {pod.key}"
        if not _waits_for_new_volume(pod, flying):
            assert outcome(before) == outcome(after), f"seed {seed}, {pod.key}"
            assert outcome(decided) == outcome(later), f"seed {seed}, {pod.key}"


def _waits_for_new_volume(pod: Pod, flying: Flight) -> bool:
    """Of a volume that is not there yet, the reasons and the score are not known: only where it will be."""
    claims = (flying.now.snapshot.claim(use.key) for use in claim_uses(pod))
    return any(
        it is not None and selected_node(it, alpha=True) is not None and not it.volume_name for it in claims
    )


@given(st.integers(0, 2**48))
@settings(max_examples=extent(38, 150), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_the_answer_in_flight_is_the_answer_once_it_is_bound(seed: int) -> None:
    answers_agree(seed, TERSE)


def test_that_would_be_noticed() -> None:
    for seed in range(200):
        try:
            answers_agree(seed, AS_WRITTEN)
        except AssertionError:
            return
    raise AssertionError("200 clusters do not miss what is in flight")
