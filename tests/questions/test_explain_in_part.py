"""A pod of a large store is explained from a part of its volumes, with the answer that all of them give."""

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.support.fresh_stores import fresh_store
from volsched.kube.meta import HOSTNAME, ZONE
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import NOTHING, Decision
from volsched.log.reads.volume_outlines import free_volumes, load_but_outlined, settled_volumes
from volsched.log.transaction import execute
from volsched.questions.explain import remedies, sampled_store, survey, volume_sample
from volsched.questions.explain.sampled_store import explanation_from_sample
from volsched.questions.explain.volume_sample import for_decision, for_remedies, nearest_anywhere
from volsched.questions.source import explanation, objects_of, sight_of
from volsched.scheduling.rules.profile import PARITY, VOLSCHED, Profile

Manifest = dict[str, Any]
NODES = ("n-0", "n-1", "n-2", "n-3", "n-4", "n-5")
SIZES = ("8Gi", "10Gi", "10240Mi", "11Gi", "12Gi", "40Gi")
STORES = 12
NOUNS = {
    "StorageClass": "class",
    "Node": "node",
    "PersistentVolume": "volume",
    "PersistentVolumeClaim": "claim",
    "Pod": "pod",
    "CSINode": "csinode",
    "VolumeAttachment": "attachment",
}
EVENTS = {"csinode": "CSINode"}
DRIVER = "csi.example.com"


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every store counts as large, few of its nodes are judged, and few volumes come near."""
    monkeypatch.setattr(sampled_store, "MANY_VOLUMES", 0)
    monkeypatch.setattr(survey, "SMALL", 0)
    monkeypatch.setattr(survey, "SAMPLED", 1)
    monkeypatch.setattr(survey, "PER_REASON", 1)
    monkeypatch.setattr(remedies, "MOST_NODES", 1)
    for module in (survey, volume_sample):
        monkeypatch.setattr(module, "NEAR_ANYWHERE", 1)
        monkeypatch.setattr(module, "NEAR_ON_NODE", 3)


def stored(database: Database, manifests: list[Manifest]) -> None:
    events = [
        NewEvent(stream=f"{noun}/{key}", type=f"{EVENTS.get(noun, noun.capitalize())}Created", data={"patch": it})
        for it in manifests
        for noun, key in [(NOUNS[it["kind"]], _key(it))]
    ]
    command = Command(
        actor="cli/apply/test",
        streams=tuple(it.stream for it in events),
        decide=lambda _: Decision(events=tuple(events)),
    )
    (outcome,) = execute(database, [command], now=0, react=lambda _, __: NOTHING)
    assert isinstance(outcome, Done), outcome


def _key(manifest: Manifest) -> str:
    meta = manifest["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])


def store_of(random: Random) -> list[Manifest]:
    """Stacks of volumes that are alike, single ones that are not, and pods that ask for some of them."""
    objects: list[Manifest] = [_class("local"), _class("other"), _class("now", mode="Immediate")]
    objects += [_node(name, f"z-{place % 2}", random.random() < 0.2) for place, name in enumerate(NODES)]
    volumes: list[Manifest] = []
    for _ in range(random.randint(1, 8)):
        count = random.choice((1, 3, 30, 40))
        spec = {
            "accessModes": [random.choice(("ReadWriteOnce", "ReadOnlyMany"))],
            "capacity": {"storage": random.choice(SIZES)},
            "storageClassName": random.choice(("local", "local", "local", "other", "now", "gone")),
            "persistentVolumeReclaimPolicy": "Retain",
            "nodeAffinity": _affinity(*random.choice([(HOSTNAME, it) for it in NODES] + [(ZONE, "z-1")])),
        }
        source = _disk if random.random() < 0.2 else _directory
        labels = random.choice(({}, {"tier": "ssd"}, {"tier": "hdd"}))
        phase = random.choice(("Available", "Available", "Released", "Pending", ""))
        sizes = random.choice((SIZES[:1], SIZES[1:3], SIZES, [f"{size}Gi" for size in range(1, 30)]))
        one_size, on_every_node, reached_from_all = (random.random() < chance for chance in (0.5, 0.4, 0.1))
        for place in range(count):
            name = f"pv-{random.randrange(10_000):04}-{len(volumes)}"
            own = spec | source(name)
            if reached_from_all:
                del own["nodeAffinity"]
            elif on_every_node:
                own["nodeAffinity"] = _affinity(HOSTNAME, NODES[place % len(NODES)])
            if not one_size:
                own["capacity"] = {"storage": random.choice(sizes)}
            volumes.append(_object("PersistentVolume", name, spec=own, labels=labels, status={"phase": phase}))
    objects += [_attaching(name) for name in NODES if random.random() < 0.5]
    objects += [it for each in volumes if random.random() < 0.4 for it in _bound(random, each)]
    objects += volumes
    for number in range(random.randint(1, 3)):
        names = []
        for place in range(random.randint(0, 3)):
            names.append(f"data-{number}-{place}")
            if random.random() < 0.9:
                objects.append(_claim(random, names[-1], volumes))
        mounts: list[Manifest] = [{"name": it, "persistentVolumeClaim": {"claimName": it}} for it in names]
        if random.random() < 0.2:
            template = {"spec": _claim(random, "own", volumes)["spec"]}
            mounts.append({"name": "own", "ephemeral": {"volumeClaimTemplate": template}})
        spec = {"volumes": mounts, "containers": [{"name": "c"}]}
        if random.random() < 0.2:
            spec["nodeName"] = random.choice(NODES)
        objects.append(_object("Pod", f"web-{number}", namespace="default", spec=spec))
    return objects


def _directory(name: str) -> Manifest:
    return {"local": {"path": f"/mnt/{name}"}}


def _disk(name: str) -> Manifest:
    return {"csi": {"driver": DRIVER, "volumeHandle": name}}


def _attaching(node: str) -> Manifest:
    driver = {"name": DRIVER, "nodeID": node, "allocatable": {"count": 2}}
    return _object("CSINode", node, spec={"drivers": [driver]})


def _bound(random: Random, volume: Manifest) -> Iterator[Manifest]:
    """The claim that the volume is bound to from now on, and at times a pod that uses it."""
    name = f"of-{volume['metadata']['name']}"
    reference = {"namespace": "default", "name": name, "uid": f"uid-{name}"}
    volume["spec"] = volume["spec"] | {"claimRef": reference}
    volume["status"] = {"phase": "Bound"}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": volume["spec"]["storageClassName"],
        "volumeName": volume["metadata"]["name"],
    }
    claim = _object("PersistentVolumeClaim", name, namespace="default", spec=spec, status={"phase": "Bound"})
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    yield claim
    if random.random() < 0.5:
        mount = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        used = {"volumes": [mount], "containers": [{"name": "c"}], "nodeName": random.choice(NODES)}
        yield _object("Pod", f"user-{name}", namespace="default", spec=used)


def _claim(random: Random, name: str, volumes: list[Manifest]) -> Manifest:
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": random.choice((*SIZES, "100Gi", "10737418240001m"))}},
        "storageClassName": random.choice(("local", "local", "local", "other", "now")),
    }
    if random.random() < 0.3:
        spec["selector"] = {"matchLabels": {"tier": "ssd"}}
    claim = _object("PersistentVolumeClaim", name, namespace="default", spec=spec, status={"phase": "Pending"})
    match random.randrange(8):
        case 0:
            # It names a volume that does not name it.
            spec["volumeName"] = random.choice(volumes)["metadata"]["name"]
        case 1:
            volume = random.choice(volumes)
            reference = {"namespace": "default", "name": name, "uid": claim["metadata"]["uid"]}
            volume["spec"] = volume["spec"] | {"claimRef": reference}
    return claim


def _object(kind: str, name: str, *, namespace: str = "", labels: Manifest | None = None, **rest: Any) -> Manifest:
    where = {"namespace": namespace} if namespace else {}
    meta = {"name": name, "uid": f"uid-{name}", "labels": labels or {}} | where
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, **rest}


def _class(name: str, mode: str = "WaitForFirstConsumer") -> Manifest:
    maker = "kubernetes.io/no-provisioner"
    return _object("StorageClass", name, provisioner=maker, volumeBindingMode=mode)


def _node(name: str, zone: str, cordoned: bool) -> Manifest:
    labels = {HOSTNAME: name, ZONE: zone}
    return _object("Node", name, labels=labels, spec={"unschedulable": cordoned})


def _affinity(key: str, value: str) -> Manifest:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    return {"required": {"nodeSelectorTerms": [term]}}


def questions(objects: list[Manifest]) -> Iterator[tuple[str, str | None, Profile]]:
    pods = [_key(it) for it in objects if it["kind"] == "Pod"]
    used = [it for it in pods if it.startswith("default/user")]
    for pod in [it for it in pods if it not in used] + used[:1]:
        yield pod, None, VOLSCHED
        yield pod, NODES[1], VOLSCHED
        yield pod, None, PARITY


def compare_answers(database: Database, seed: int) -> None:
    objects = store_of(Random(seed))
    stored(database, objects)
    for pod, node, profile in questions(objects):
        whole = explanation(sight_of(database, (), profile=profile), pod, node=node, now=0)
        part = explanation_from_sample(database, (), pod, profile=profile, now=0, node=node)
        assert part == whole, (seed, pod, node, profile.name)


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("seed", range(0, STORES, 4))
def test_a_part_of_the_volumes_gives_the_answer_of_all(seed: int) -> None:
    for each in range(seed, seed + 4):
        with fresh_store() as database:
            compare_answers(database, each)


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("seed", range(STORES, STORES + 3))
def test_either_engine_gives_the_answer_of_all(database: Database, seed: int) -> None:
    """The database takes outlines out of the manifests, and writes their JSON in its own way."""
    compare_answers(database, seed)


@pytest.mark.usefixtures("sampled")
def test_a_remedy_gives_the_node_that_the_whole_store_gives(database: Database) -> None:
    """A remedy is found on a node that is judged, and the decision chooses among all nodes."""
    nodes = [_node(name, "z-0", cordoned=False) for name in NODES]
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
    volumes = [
        _object(
            "PersistentVolume",
            f"pv-{number:03}",
            spec=spec
            | {"capacity": {"storage": "10Gi"}, "nodeAffinity": _affinity(HOSTNAME, NODES[number % len(NODES)])}
            | _directory(str(number)),
            status={"phase": "Available"},
        )
        for number in range(60)
    ]
    large = spec | {"resources": {"requests": {"storage": "40Gi"}}}
    pods = []
    for number in range(6):
        claim = _object("PersistentVolumeClaim", f"data-{number}", namespace="default", spec=large)
        mount = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}}
        pod_spec = {"volumes": [mount], "containers": [{"name": "c"}]}
        pods += [claim, _object("Pod", f"web-{number}", namespace="default", spec=pod_spec)]
    stored(database, [_class("local"), *nodes, *volumes, *pods])
    chosen = set()
    for number in range(6):
        pod = f"default/web-{number}"
        whole = explanation(sight_of(database, (), profile=VOLSCHED), pod, node=None, now=0)
        assert explanation_from_sample(database, (), pod, profile=VOLSCHED, now=0) == whole
        chosen |= {it["node"] for it in whole["remedies"]}
    assert len(chosen) > 1


@pytest.mark.usefixtures("sampled")
def test_what_is_laid_over_the_store_is_read_too(sqlite: Database) -> None:
    """A claim may name a volume that nothing in the store refers to, and a volume may be given another size."""
    objects = store_of(Random(3))
    stored(sqlite, objects)
    volumes = sorted(_key(it) for it in objects if it["kind"] == "PersistentVolume")
    named = _object(
        "PersistentVolumeClaim",
        "mine",
        namespace="default",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "volumeName": volumes[-1],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    )
    grown = next(it for it in objects if _key(it) == volumes[0])
    grown = grown | {"spec": grown["spec"] | {"capacity": {"storage": "500Gi"}}}
    mount = {"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}
    containers = [{"name": "c", "image": "i"}]
    pod = _object("Pod", "laid", namespace="default", spec={"volumes": [mount], "containers": containers})
    over = objects_of([named, grown, pod])
    whole = explanation(sight_of(sqlite, over, profile=VOLSCHED), "default/laid", node=None, now=0)
    assert explanation_from_sample(sqlite, over, "default/laid", profile=VOLSCHED, now=0) == whole


@pytest.mark.usefixtures("sampled")
def test_a_volume_that_is_laid_over_stands_for_no_other(database: Database) -> None:
    """All but one of the volumes that fit have another class in the manifests."""
    requested: Manifest = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
    spec = requested | {"nodeAffinity": _affinity(HOSTNAME, "n-0")}
    volumes = [
        _object(
            "PersistentVolume",
            f"pv-{number:02}",
            spec=spec | {"capacity": {"storage": "10Gi"}} | _directory(str(number)),
            status={"phase": "Available"},
        )
        for number in range(20)
    ]
    requested |= {"resources": {"requests": {"storage": "10Gi"}}}
    claim = _object("PersistentVolumeClaim", "data", namespace="default", spec=requested)
    mount = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    containers = [{"name": "c", "image": "i"}]
    pod = _object("Pod", "web", namespace="default", spec={"volumes": [mount], "containers": containers})
    stored(database, [_class("local"), *(_node(it, "z-0", cordoned=False) for it in NODES), *volumes, claim, pod])
    over = objects_of([it | {"spec": it["spec"] | {"storageClassName": "other"}} for it in volumes[:19]])
    whole = explanation(sight_of(database, over, profile=VOLSCHED), "default/web", node=None, now=0)
    assert whole["chosen"]["bindings"][0]["volume"] == "pv-19"
    assert explanation_from_sample(database, over, "default/web", profile=VOLSCHED, now=0) == whole


def test_of_volumes_that_are_alike_few_are_read(database: Database) -> None:
    """Told apart by size and place, on either engine; no more than a decision takes, or an explanation names."""
    alike = [
        _object(
            "PersistentVolume",
            f"pv-{place:03}",
            spec={
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": SIZES[place % 2]},
                "storageClassName": "local",
                "local": {"path": f"/mnt/{place}"},
                "nodeAffinity": _affinity(HOSTNAME, NODES[place % 3]),
            },
            status={"phase": "Available"},
        )
        for place in range(300)
    ]
    stored(database, alike)
    with database.read() as connection:
        every = free_volumes(connection)
        assert len(every) == len(alike)
        large = free_volumes(connection, classes={"local"}, least=10 * 2**30)
        assert free_volumes(connection, classes={"other"}) == []
    most = survey.NEAR_ON_NODE + 2
    near = nearest_anywhere(every, sizes=[2**30, 9 * 2**30])
    assert list(near) == ["pv-000", "pv-002", "pv-004", "pv-001", "pv-003", "pv-005"]
    read = partial(for_remedies, every, others=2)
    assert len(list(read(sizes=[2**30, 9 * 2**30], judged=lambda _: True))) == 2 * 3 * most
    # Of the smaller ones, as many as claims may take once they ask for less.
    assert len(list(read(sizes=[11 * 2**30, 12 * 2**30], judged=lambda _: True))) == 3 * (most + 2)
    # On a node that is not judged, no more of any size; none where no claim may take one.
    on_first = partial(read, sizes=[11 * 2**30, 12 * 2**30], judged=lambda it: f'"{NODES[0]}"' in (it or ""))
    assert len(list(on_first())) == most + 2 + 2 * (2 + 2)
    assert len(list(on_first(others=0))) == most + 2
    assert {it.capacity.replace(" ", "") for it in large if it.capacity} == {'{"storage":"10Gi"}'}
    assert sorted(for_decision(large, sizes=[9 * 2**30, 2**30])) == [
        "pv-001", "pv-003", "pv-005", "pv-007", "pv-009", "pv-011"
    ]  # fmt: skip


def test_a_volume_is_settled_where_it_can_matter_to_its_own_claim_only(database: Database) -> None:
    def bound(name: str, source: Manifest) -> list[Manifest]:
        spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "local"}
        volume = _object("PersistentVolume", name, spec=spec | source)
        claim, *_ = _bound(Random(0), volume)
        return [volume, claim]

    settled, disk, recreated, attached = (
        bound("settled", _directory("a")),
        bound("disk", _disk("b")),
        bound("recreated", _directory("c")),
        bound("attached", _directory("d")),
    )
    recreated[1]["metadata"]["uid"] = "another"
    source = {"persistentVolumeName": "attached"}
    attachment = _object(
        "VolumeAttachment", "held", spec={"attacher": DRIVER, "nodeName": NODES[0], "source": source}
    )
    free = _object("PersistentVolume", "free", spec=_directory("e"), status={"phase": "Available"})
    stored(database, [*settled, *disk, *recreated, *attached, attachment, free])
    with database.read() as connection:
        assert [it.key for it in settled_volumes(connection, but_of=())] == ["settled"]
        assert settled_volumes(connection, but_of={"default/of-settled"}) == []
        loaded = load_but_outlined(connection, claims=()).states
        every = load_but_outlined(connection, claims=None).states
    left_out = {"volume/settled", "claim/default/of-settled"}
    assert every.keys() - loaded.keys() == left_out
    assert "volume/free" not in every
