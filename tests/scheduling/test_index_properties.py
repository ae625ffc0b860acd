"""The index decides as the un-indexed rules do, whatever has happened before."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.scheduling.index_streams import NODES, Stream
from tests.support.extent import extended, extent
from tests.support.index_outcomes import outcome
from tests.support.random_clusters import Cluster, clusters
from volsched.binding.rules.failures import freed
from volsched.kube.manifest import bind_volume
from volsched.kube.meta import BIND_COMPLETED, HOSTNAME, TOPOLOGY_LABELS, ZONE
from volsched.kube.object_values import Object
from volsched.kube.workloads import Pod
from volsched.scheduling.index import Index
from volsched.scheduling.plugins.plugin import Plugin, Prepared
from volsched.scheduling.plugins.registry import Enabled
from volsched.scheduling.queue.entry import ALL, Share
from volsched.scheduling.rules.attempts import RUNNERS_UP
from volsched.scheduling.rules.cycle import VOLUME_BINDING, Verdict, attempt
from volsched.scheduling.rules.failure_memory import NO_DEMERITS, Demerits
from volsched.scheduling.rules.pod_claims import claim_uses
from volsched.scheduling.rules.profile import PARITY, VOLSCHED, Profile
from volsched.scheduling.rules.snapshot import Snapshot, snapshot_of
from volsched.scheduling.rules.status import Code, Rule, Status

pytestmark = extended

seeds = st.integers(0, 2**48)
KEYS = (TOPOLOGY_LABELS, (ZONE,), (HOSTNAME,), (ZONE, HOSTNAME))
# A smaller seed is no simpler stream: a failing one is reported as it is.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


def drawn_demerits(stream: Stream, snapshot: Snapshot) -> Demerits:
    """Of every third decision: nodes where the pod failed, and domains that refuse a class of its."""
    random = stream.random
    if random.random() > 0.35:
        return NO_DEMERITS
    nodes = {name: random.randint(1, 3) for name in random.sample(NODES, random.randint(0, 4))}
    somewhere = [it for it in snapshot.nodes.values() if random.random() < 0.2]
    domains = {tuple((key, it.labels.get(key)) for key in random.choice(KEYS)) for it in somewhere[:2]}
    return Demerits(nodes, frozenset(domains))


def decisions_agree(seed: int, profile: Profile, *, turns: int, rare: bool = False) -> None:
    # Every other stream is decided by one of several schedulers, which begins with ties at another name.
    share = Share(seed // 2 % 4, 4) if seed % 2 else ALL
    index = Index(profile=profile, share=share)
    stream = Stream(seed, index, rare=rare)
    # Explanations look at every volume for every refusal, and decide nothing.
    terse = replace(profile, explains=False)
    for turn in range(turns):
        wanting = stream.ask(turn)
        avoid = stream.random.sample(NODES, 2) if stream.random.random() < 0.1 else ()
        against = drawn_demerits(stream, index.snapshot)
        made = index.decide(wanting, avoid=avoid, demerits=against)
        wanted = attempt(stream.world.snapshot, wanting, profile=terse, avoid=avoid, demerits=against, share=share)
        assert outcome(made) == outcome(wanted), f"seed {seed}, turn {turn}"
        assert made.runners_up[:RUNNERS_UP] == wanted.runners_up[:RUNNERS_UP], f"seed {seed}, turn {turn}"
        if stream.random.random() < 0.5:
            stream.assume(wanting, wanted, profile)
        for _ in range(stream.random.randint(0, 4)):
            stream.step()


@given(seeds)
@settings(max_examples=extent(350, 1400), deadline=None, phases=PHASES)
def test_the_index_decides_as_the_rules_do_after_every_event(seed: int) -> None:
    decisions_agree(seed, VOLSCHED, turns=6)


@given(seeds)
@settings(max_examples=extent(150, 600), deadline=None, phases=PHASES)
def test_the_index_decides_as_the_rules_do_in_parity(seed: int) -> None:
    decisions_agree(seed, PARITY, turns=6)


@given(seeds, st.sampled_from([VOLSCHED, PARITY]))
@settings(max_examples=extent(75, 300), deadline=None, phases=PHASES)
def test_the_index_serves_the_largest_claim_first_as_the_rules_do(seed: int, base: Profile) -> None:
    decisions_agree(seed, replace(base, largest_claim_first=True), turns=6)


@given(seeds, st.sampled_from([VOLSCHED, PARITY]), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=extent(100, 400), deadline=None, phases=PHASES)
def test_the_index_heeds_match_fields_and_alpha_names_as_the_rules_do(
    seed: int, base: Profile, enforced: bool, alpha: bool, descending: bool
) -> None:
    profile = replace(
        base, enforce_match_fields=enforced, reads_alpha_annotations=alpha, largest_claim_first=descending
    )
    decisions_agree(seed, profile, turns=6, rare=True)


@given(seeds)
@settings(max_examples=extent(100, 400), deadline=None, phases=PHASES)
def test_the_reasons_that_are_kept_are_those_of_the_rules(seed: int) -> None:
    index = Index(profile=VOLSCHED)
    stream = Stream(seed, index)
    for turn in range(6):
        wanting = stream.ask(turn)
        refusal = index.decide(wanting)
        for status, verdict in index.in_full(wanting, refusal).items():
            assert verdict.node in refusal.examples[status]
            (judged,) = attempt(stream.world.snapshot, wanting, profile=VOLSCHED, only={verdict.node}).verdicts
            assert verdict.status == judged.status == status
            for mine, rules in zip(verdict.status.rejections, judged.status.rejections, strict=True):
                assert (mine.claim, mine.reason, mine.failures) == (rules.claim, rules.reason, rules.failures)
                reached = [it for it in rules.misses if Rule.NODE_AFFINITY not in {f.rule for f in it.failures}]
                if reached and rules.misses[0] in reached:
                    assert mine.misses[0] == rules.misses[0], f"seed {seed}, turn {turn}"
        for _ in range(stream.random.randint(0, 4)):
            stream.step()


@dataclass(frozen=True)
class Unknown:
    """A plugin as somebody else may have written it: the index knows nothing of what it does."""

    plugin: Plugin

    @property
    def name(self) -> str:
        return self.plugin.name

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        return self.plugin.prefilter(snapshot, pod)


def unknown(plugins: Iterable[Enabled]) -> tuple[Enabled, ...]:
    return tuple(Enabled(Unknown(it.plugin), it.weight) for it in plugins)


@given(seeds)
@settings(max_examples=extent(15, 60), deadline=None, phases=PHASES)
def test_a_plugin_that_the_index_knows_nothing_of_is_asked_about_every_node(seed: int) -> None:
    before, after = unknown(VOLSCHED.before_volumes), unknown(VOLSCHED.after_volumes)
    decisions_agree(seed, replace(VOLSCHED, before_volumes=before, after_volumes=after), turns=6)


@given(seeds)
@settings(max_examples=extent(10, 40), deadline=None, phases=PHASES)
def test_a_long_life_makes_no_difference(seed: int) -> None:
    """Long enough for what is remembered to be used, overtaken and started again."""
    decisions_agree(seed, VOLSCHED, turns=60)


@given(seeds, st.sampled_from([VOLSCHED, PARITY]))
@settings(max_examples=extent(38, 150), deadline=None, phases=PHASES)
def test_an_index_that_remembers_decides_as_one_that_was_just_built(seed: int, profile: Profile) -> None:
    """Cache on is cache off, and kept up is built again: a new index remembers nothing and was told no history."""
    index = Index(profile=profile)
    stream = Stream(seed, index)
    for turn in range(8):
        wanting = stream.ask(turn)
        fresh = stream.world.lay_over(Index(stream.world.objects.values(), profile=profile))
        made = index.decide(wanting)
        assert outcome(made) == outcome(fresh.decide(wanting)) == outcome(index.decide(wanting))
        stream.assume(wanting, made, profile)
        for _ in range(stream.random.randint(0, 4)):
            stream.step()


@given(seeds, st.sampled_from([VOLSCHED, PARITY]))
@settings(max_examples=extent(38, 150), deadline=None, phases=PHASES)
def test_as_many_nodes_would_do_as_the_rules_let_pass(seed: int, profile: Profile) -> None:
    index = Index(profile=profile)
    stream = Stream(seed, index)
    for turn in range(4):
        wanting = stream.ask(turn)
        wanted = attempt(stream.world.snapshot, wanting, profile=replace(profile, explains=False))
        if wanted.status.code is not Code.ERROR:
            assert index.feasible(wanting) == len(wanted.fitting), f"seed {seed}, turn {turn}"
        stream.assume(wanting, wanted, profile)


@given(seeds)
@settings(max_examples=extent(62, 250), deadline=None, phases=PHASES)
def test_what_if_claims_were_free_again_is_answered_as_by_the_rules(seed: int) -> None:
    """As where claims are asked back; and afterwards everything is what it was."""
    index = Index()
    stream = Stream(seed, index)
    for turn in range(4):
        wanting = stream.ask(turn)
        snapshot, claims = stream.world.snapshot, []
        for use in claim_uses(wanting):
            held, volumes = snapshot.stored_claims.get(use.key), sorted(snapshot.stored_volumes)
            if held is not None and volumes:
                name = stream.random.choice(volumes)
                stream.put(bind_volume(snapshot.stored_volumes[name], held)[0])
                marks = {**held.meta.annotations, BIND_COMPLETED: "yes"}
                held = replace(held, volume_name=name, meta=replace(held.meta, annotations=marks))
                stream.put(held)
                claims.append(held)
        before, whole = outcome(index.decide(wanting)), stream.world.snapshot
        changed = freed(whole, claims)
        with index.supposing(changed):
            made = index.decide(wanting)
        supposing: dict[tuple[type[Object], str], Object] = {(type(it), it.meta.key): it for it in changed}
        objects = {**stream.world.objects, **supposing}
        supposed = replace(snapshot_of(objects.values()), reserved=whole.reserved, promised=whole.promised)
        wanted = attempt(supposed, wanting, profile=replace(VOLSCHED, explains=False))
        assert outcome(made) == outcome(wanted), f"seed {seed}, turn {turn}"
        assert outcome(index.decide(wanting)) == before
        assert index.snapshot.stored_claims == whole.stored_claims
        assert index.snapshot.stored_volumes == whole.stored_volumes
        stream.step()


@given(clusters(), st.sampled_from([VOLSCHED, PARITY]))
@settings(max_examples=extent(50, 200), deadline=None)
def test_every_small_cluster_is_decided_as_by_the_rules(cluster: Cluster, profile: Profile) -> None:
    """The clusters of the other property tests, which shrink well."""
    index = Index(cluster.objects, profile=profile)
    for key, size in cluster.reserved.items():
        index.reserve(key, size)
    assert outcome(index.decide(cluster.pod)) == outcome(attempt(cluster.snapshot, cluster.pod, profile=profile))


@pytest.mark.parametrize("first", [True, False])
@given(seeds)
@settings(max_examples=extent(12, 50), deadline=None, phases=PHASES)
def test_explanations_name_the_same_reasons(first: bool, seed: int) -> None:
    """What `explain` says about a node is what the rules say about it, among others or alone."""
    index = Index()
    stream = Stream(seed, index)
    wanting = stream.ask(0)
    whole = attempt(stream.world.snapshot, wanting, profile=VOLSCHED)
    for verdict in whole.verdicts[:1] if first else whole.verdicts[-1:]:
        alone = attempt(index.snapshot, wanting, profile=VOLSCHED, only=frozenset([verdict.node]))
        assert alone.verdicts == (verdict,)


@given(seeds)
@settings(max_examples=extent(30, 120), deadline=None, phases=PHASES)
def test_every_node_that_is_called_answers_as_the_rules_do(seed: int) -> None:
    for profile in (VOLSCHED, PARITY):
        index = Index(profile=profile)
        stream = Stream(seed, index)
        terse = replace(profile, explains=False)
        for turn in range(4):
            wanting = stream.ask(turn)
            names = stream.random.sample(NODES, stream.random.randint(1, len(NODES)))
            called = index.roll_call(wanting, names)
            wanted = attempt(stream.world.snapshot, wanting, profile=terse, only=names)
            if called.status.passed:
                mine = {name: (it.status, it.plugin, _volumes(it)) for name, it in called.verdicts.items()}
                theirs = {it.node: (it.status, it.plugin, _volumes(it)) for it in wanted.verdicts}
                assert mine == theirs, f"seed {seed}, turn {turn}"
            else:
                assert not wanted.verdicts, f"seed {seed}, turn {turn}"
                assert all(reason in wanted.status.reasons[0] for reason in called.status.reasons)
            for _ in range(stream.random.randint(0, 4)):
                stream.step()


def _volumes(verdict: Verdict) -> int:
    return verdict.scores.get(VOLUME_BINDING, 0)
