"""The configuration file: what it changes, and what it says about mistakes."""

from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.support.objects import affinity, claim, local_volume, needs, node, pod, storage_class, volume
from volsched.runtime.settings import configuration
from volsched.scheduling.index import Index
from volsched.scheduling.queue.entry import SECOND, QueueWaits
from volsched.scheduling.rules.configuration import Configuration, ConfigurationError, configure
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.profile import PACK, PARITY, VOLSCHED, Profile, ScoringPolicy
from volsched.scheduling.rules.snapshot import snapshot_of

ALL = {
    "NodeUnschedulable": 0, "NodeName": 0, "TaintToleration": 3, "NodeAffinity": 2, "NodeResourcesFit": 1,
    "PodTopologySpread": 2, "InterPodAffinity": 2,
}  # fmt: skip


def weights(profile: Profile) -> dict[str, int]:
    return {it.plugin.name: it.weight for it in (*profile.before_volumes, *profile.after_volumes)}


def profile_of(**given: Any) -> Profile:
    document = {"profile": "mine", "profiles": [{"name": "mine", **given}]}
    return configure(document, find=lambda _: None).profile


def test_without_a_word_everything_is_on_with_the_weights_of_the_design() -> None:
    assert configure(None, find=lambda _: None) == configure({}, find=lambda _: None) == Configuration()
    assert weights(VOLSCHED) == ALL
    assert weights(PARITY) == {}
    assert VOLSCHED.volume_weight == 1


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        ({}, ALL),
        ({"NodeAffinity": {"weight": 7}}, {**ALL, "NodeAffinity": 7}),
        ({"TaintToleration": {"enabled": False}}, {k: v for k, v in ALL.items() if k != "TaintToleration"}),
        ({"NodeAffinity": {}, "NodeName": {"weight": 0}}, ALL),
    ],
)
def test_plugins_are_switched_and_weighed(plugins: dict[str, Any], expected: dict[str, int]) -> None:
    found = profile_of(plugins=plugins)
    assert weights(found) == expected
    assert list(weights(found)) == list(expected)


def test_a_profile_on_parity_has_the_plugins_it_names_in_the_reference_order() -> None:
    found = profile_of(base="parity", plugins={"InterPodAffinity": {}, "NodeAffinity": {"weight": 4}})
    assert [it.plugin.name for it in found.before_volumes] == ["NodeAffinity"]
    assert [it.plugin.name for it in found.after_volumes] == ["InterPodAffinity"]
    assert (found.name, found.exact_matching) == ("mine", False)


def test_scoring_time_outs_and_the_weight_of_volumes() -> None:
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    found = profile_of(scoring={"policy": "upstream", "shape": shape}, plugins={"VolumeBinding": {"weight": 5}})
    assert (found.scoring, found.shape, found.volume_weight) == (ScoringPolicy.UPSTREAM, PACK, 5)
    assert configure({"timeouts": {"bindSeconds": 30}}, find=lambda _: None).bind_timeout_seconds == 30


@pytest.mark.parametrize("word", ["closest-fit", "seed"])
def test_the_old_word_for_the_closest_fit_is_still_read(word: str) -> None:
    assert profile_of(base="parity", scoring={"policy": word}).scoring is ScoringPolicy.CLOSEST_FIT
    waiting = {"backoffInitialSeconds": 2, "backoffMaxSeconds": 60, "unschedulableSeconds": 90}
    made = configure(
        {"timeouts": {**waiting, "capacityHoldSeconds": 7, "goneNodeSeconds": 9}}, find=lambda _: None
    )
    assert made.gone_node_seconds == 9
    assert made.waits == QueueWaits(
        first_backoff=2 * SECOND, longest_backoff=60 * SECOND, unschedulable=90 * SECOND
    )
    assert (made.capacity_hold_seconds, made.bind_timeout_seconds) == (7, 600)


@pytest.mark.parametrize("base", ["volsched", "parity"])
@pytest.mark.parametrize(
    ("said", "field", "value"),
    [
        ({"claimOrder": "largest-first"}, "largest_claim_first", True),
        ({"claimOrder": "smallest-first"}, "largest_claim_first", False),
        ({"pvMatchFields": "enforce"}, "enforce_match_fields", True),
        ({"pvMatchFields": "ignore"}, "enforce_match_fields", False),
        ({"alphaAnnotations": "read"}, "reads_alpha_annotations", True),
        ({"alphaAnnotations": "ignore"}, "reads_alpha_annotations", False),
        ({"releaseForeignVolumes": True}, "releases_foreign_volumes", True),
        ({"releaseForeignVolumes": False}, "releases_foreign_volumes", False),
    ],
)
def test_rules_of_volumes_are_chosen_one_by_one(base: str, said: dict[str, Any], field: str, value: bool) -> None:
    found, unchanged = profile_of(base=base, **said), profile_of(base=base)
    assert getattr(found, field) is value
    assert replace(found, **{field: getattr(unchanged, field)}) == unchanged


def test_alpha_names_that_are_written_are_read_too() -> None:
    found = profile_of(base="parity", alphaAnnotations="write")
    assert (found.reads_alpha_annotations, found.writes_alpha_annotations) == (True, True)
    assert not VOLSCHED.writes_alpha_annotations


def test_the_order_of_claims_decides_who_gets_the_volume_that_both_could_have() -> None:
    """Smallest first, the larger claim is left without; largest first, both fit."""
    ssd = {"matchLabels": {"disk": "ssd"}}
    objects = [
        storage_class(provisioner="kubernetes.io/no-provisioner"), node("n1"),
        local_volume("p1", "2Gi", "n1", labels={"disk": "ssd"}), local_volume("p2", "3Gi", "n1"),
        claim("a", "1Gi"), claim("b", "2Gi", selector=ssd),
    ]  # fmt: skip
    wanting = pod("a", "b")
    for order, expected in (("smallest-first", None), ("largest-first", {"a": "p2", "b": "p1"})):
        profile = profile_of(base="parity", claimOrder=order)
        for made in (
            attempt(snapshot_of([*objects, wanting]), wanting, profile=profile),
            Index([*objects, wanting], profile=profile).decide(wanting),
        ):
            got = made.chosen and {it.claim.name: it.volume.name for it in made.chosen.answer.bindings}
            assert got == expected


def test_match_fields_of_a_volume_are_enforced_on_request() -> None:
    named = affinity({"matchFields": [needs("metadata.name", "In", "n2")]})
    objects = [storage_class(), node("n1"), node("n2"), volume("disk", "2Gi", nodeAffinity=named)]
    wanting, data = pod("data"), claim("data", "1Gi")
    for said, fits in (("ignore", {"n1", "n2"}), ("enforce", {"n2"})):
        profile = profile_of(pvMatchFields=said)
        made = attempt(snapshot_of([*objects, data, wanting]), wanting, profile=profile)
        assert {it.node for it in made.verdicts if it.status.passed} == fits
        assert Index([*objects, data, wanting], profile=profile).decide(wanting).chosen is not None
    bound = claim("data", "1Gi", bound_to="disk")
    made = attempt(snapshot_of([*objects, bound, wanting]), wanting, profile=profile)
    assert {it.node for it in made.verdicts if it.status.passed} == {"n2"}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (
            {"profiles": [{"name": "mine", "claimOrder": "ascending"}]},
            "profiles[0].claimOrder: must be 'smallest-first' or 'largest-first', not 'ascending'",
        ),
        ([], "the document must be a mapping of fields"),
        ({"profile": "mine"}, 'profile: there is no profile "mine"; name one of: parity, volsched'),
        ({"plugins": {}}, "plugins: there is no such field; known here are profile, profiles, timeouts"),
        (
            {"timeouts": {"bind": 3}},
            "timeouts.bind: there is no such field; known here are bindSeconds, backoffInitialSeconds, "
            "backoffMaxSeconds, unschedulableSeconds, capacityHoldSeconds, goneNodeSeconds",
        ),
        (
            {"timeouts": {"backoffInitialSeconds": 11}},
            "timeouts.backoffInitialSeconds: 11 is more than backoffMaxSeconds, 10; "
            "lower it, or raise backoffMaxSeconds",
        ),
        ({"timeouts": {"unschedulableSeconds": -1}}, "timeouts.unschedulableSeconds: must be at least 1, not -1"),
        ({"timeouts": {"bindSeconds": "30"}}, "timeouts.bindSeconds: must be a whole number, such as 2"),
        ({"timeouts": {"bindSeconds": 0}}, "timeouts.bindSeconds: must be at least 1, not 0"),
        ({"profiles": {}}, "profiles: must be a list"),
        ({"profiles": [{}]}, "profiles[0].name: is required; add it"),
        ({"profiles": [{"name": ""}]}, "profiles[0].name: must not be empty"),
        (
            {"profiles": [{"name": "parity"}]},
            'profiles[0].name: there is a profile "parity" already; give it another name',
        ),
        (
            {"profiles": [{"name": "x", "base": "best"}]},
            "profiles[0].base: must be 'volsched' or 'parity', not 'best'",
        ),
        (
            {"profiles": [{"name": "x", "plugins": {"NodeAffinity": {"wieght": 1}}}]},
            "profiles[0].plugins.NodeAffinity.wieght: there is no such field; "
            "known here are enabled, weight, place",
        ),
        (
            {"profiles": [{"name": "x", "plugins": {"NodeAffinity": {"weight": True}}}]},
            "profiles[0].plugins.NodeAffinity.weight: must be a whole number, such as 2",
        ),
        (
            {"profiles": [{"name": "x", "plugins": {"NodeAffinity": {"weight": 1001}}}]},
            "profiles[0].plugins.NodeAffinity.weight: must be at most 1000, not 1001",
        ),
        (
            {"profiles": [{"name": "x", "plugins": {"NodeAffinity": {"enabled": "no"}}}]},
            "profiles[0].plugins.NodeAffinity.enabled: must be true or false",
        ),
        (
            {"profiles": [{"name": "x", "plugins": {"NodeName": {"weight": 1}}}]},
            "profiles[0].plugins.NodeName.weight: it only refuses nodes and gives no score; leave weight out",
        ),
        (
            {"profiles": [{"name": "x", "plugins": {"NodeName": {"place": "after-volumes"}}}]},
            "profiles[0].plugins.NodeName.place: its place is fixed; leave place out",
        ),
        (
            {"profiles": [{"name": "x", "plugins": {"VolumeBinding": {"enabled": False}}}]},
            "profiles[0].plugins.VolumeBinding.enabled: volumes are what this scheduler is about; "
            "leave enabled out, or set weight: 0",
        ),
        (
            {"profiles": [{"name": "x", "plugins": {"VolumeZone": {}}}]},
            "profiles[0].plugins.VolumeZone: it is part of VolumeBinding and always on; remove the entry",
        ),
        (
            {"profiles": [{"name": "x", "plugins": {"VolumeZone": {"enabled": False}}}]},
            "profiles[0].plugins.VolumeZone: it is part of VolumeBinding and always on; remove the entry",
        ),
        (
            # Or a slip of the pen would leave on what somebody believes to have switched off.
            {"profiles": [{"name": "x", "plugins": {"TaintTolerate": {"enabled": False}}}]},
            "profiles[0].plugins.TaintTolerate: there is no such plugin; known are NodeUnschedulable, NodeName, "
            "TaintToleration, NodeAffinity, NodeResourcesFit, PodTopologySpread, InterPodAffinity, VolumeBinding, "
            "and installed ones of the group volsched.plugins",
        ),
        (
            {"profiles": [{"name": "x", "plugins": {"ImageLocality": {}}}]},
            "profiles[0].plugins.ImageLocality: there is no such plugin; known are NodeUnschedulable, NodeName, "
            "TaintToleration, NodeAffinity, NodeResourcesFit, PodTopologySpread, InterPodAffinity, VolumeBinding, "
            "and installed ones of the group volsched.plugins",
        ),
        (
            {"profiles": [{"name": "x", "scoring": {"policy": "closest-fit", "shape": []}}]},
            "profiles[0].scoring.shape: only policy upstream has a shape; set policy: upstream or leave it out",
        ),
        (
            {"profiles": [{"name": "x", "scoring": {"policy": "upstream", "shape": []}}]},
            "profiles[0].scoring.shape: at least one point must be specified; "
            "write points of rising utilization 0..100 with scores 0..10",
        ),
        (
            {"profiles": [{"name": "x", "scoring": {"policy": "upstream", "shape": [{"utilization": 0}]}}]},
            "profiles[0].scoring.shape[0].score: is required; add it",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_field_and_the_remedy(document: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        configure(document, find=lambda _: None)
    assert told.value.problems == [problem]


def test_all_mistakes_are_reported_at_once() -> None:
    plugins = {"NodeName": {"weight": 1}, "Nothing": {}}
    with pytest.raises(ConfigurationError) as told:
        configure({"profile": "y", "profiles": [{"name": "x", "plugins": plugins}]}, find=lambda _: None)
    assert len(told.value.problems) == 3


# --- the file, and plugins that somebody has installed --------------------------------------------------


def written(folder: Path, text: str) -> Path:
    path = folder / "volsched.yaml"
    path.write_text(dedent(text))
    return path


PLUGIN = """
from volsched.scheduling.plugins.plugin import Prepared
from volsched.scheduling.rules.status import SUCCESS, Code, Status


class _Fridays(Prepared):
    def filter(self, node):
        unlucky = node.name.endswith("13")
        return Status(Code.UNRESOLVABLE, ("node(s) were unlucky",)) if unlucky else SUCCESS

    def scores(self, nodes):
        return [100 if "7" in node.name else 0 for node in nodes]


class Luck:
    name = "Luck"

    def prefilter(self, snapshot, pod):
        return SUCCESS, _Fridays()


class Misnamed(Luck):
    name = "Fortune"


def broken():
    raise RuntimeError("no luck")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with plugins, as pip would have left it."""
    (tmp_path / "lucky.py").write_text(PLUGIN)
    info = tmp_path / "lucky-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lucky\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[volsched.plugins]\nLuck = lucky:Luck\nWrong = lucky:Misnamed\nBroken = lucky:broken\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


ENABLES = """
    profile: mine
    profiles:
    - name: mine
      plugins:
        {name}: {{weight: 4{more}}}
"""


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("place", ["before-volumes", "after-volumes"])
def test_an_installed_plugin_refuses_and_scores_like_ours(tmp_path: Path, place: str) -> None:
    profile = configuration(written(tmp_path, ENABLES.format(name="Luck", more=f", place: {place}"))).profile
    placed = profile.before_volumes if place == "before-volumes" else profile.after_volumes
    assert (placed[-1].plugin.name, placed[-1].weight) == ("Luck", 4)
    world = snapshot_of([node("n1"), node("n7"), node("n13")])
    made = attempt(world, pod(), profile=profile)
    assert made.chosen is not None
    assert (made.chosen.node, made.chosen.score, made.chosen.scores) == ("n7", 400, {"Luck": 100})
    assert made.verdicts[1].plugin == "Luck"
    assert made.verdicts[1].status.reasons == ("node(s) were unlucky",)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Wrong", 'plugin Wrong: lucky:Misnamed calls itself "Fortune"; name it alike'),
        ("Broken", "plugin Broken: lucky:broken cannot be loaded: RuntimeError('no luck')"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named(tmp_path: Path, name: str, problem: str) -> None:
    path = written(tmp_path, ENABLES.format(name=name, more=""))
    with pytest.raises(ConfigurationError) as told:
        configuration(path)
    assert told.value.problems == [f"{path}: {problem}"]


@pytest.mark.usefixtures("installed")
def test_an_installed_plugin_does_nothing_until_it_is_named() -> None:
    assert weights(configure(None, find=lambda _: None).profile) == ALL


def test_the_file_of_the_settings_is_used_unless_another_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert configuration() == Configuration()
    monkeypatch.setenv("VOLSCHED_CONFIG", str(written(tmp_path, "profile: parity")))
    assert configuration().profile == PARITY
    other = tmp_path / "other.yaml"
    other.write_text("")
    assert configuration(other).profile == VOLSCHED


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("profile: [", "volsched.yaml"),
        ("profile: parity\n---\nprofile: volsched", "holds 2 documents; write one"),
        ("profile: x", 'volsched.yaml: profile: there is no profile "x"'),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem.replace("[", r"\[")):
        configuration(written(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.yaml: cannot be read"):
        configuration(tmp_path / "gone.yaml")


def test_a_variable_that_is_wrong_is_reported_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOLSCHED_SCHEDULER_SHARE", "9/4")
    monkeypatch.setenv("VOLSCHED_LEASE_SECONDS", "0")
    with pytest.raises(ConfigurationError) as error:
        configuration()
    assert sorted(error.value.problems) == [
        "VOLSCHED_LEASE_SECONDS: Input should be greater than 0",
        'VOLSCHED_SCHEDULER_SHARE: "9/4" is no share; write 2/4 for the second of four schedulers',
    ]


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOLSCHED_CONFIG", "")
    assert configuration() == Configuration()


def test_an_installed_plugin_that_cannot_be_loaded_can_be_switched_off() -> None:
    def broken(name: str) -> None:
        raise ConfigurationError([f"plugin {name}: cannot be loaded"])

    document = {"profile": "mine", "profiles": [{"name": "mine", "plugins": {"Quiet": {"enabled": False}}}]}
    assert weights(configure(document, find=broken).profile) == ALL
