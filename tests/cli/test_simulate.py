"""`volsched simulate`: who has to leave, who comes back where, and what keeps the others from it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support import clusters
from tests.support.clusters import Stepped
from volsched.kube.meta import ZONE
from volsched.log.database import Database
from volsched.log.reads.tail import read_head

Manifest = dict[str, Any]


def node(name: str, zone: str, **spec: Any) -> Manifest:
    labels = {"kubernetes.io/hostname": name, ZONE: zone}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec}


def volume(name: str, size: str, key: str, value: str, *, claim: str = "") -> Manifest:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    spec: Manifest = {
        "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "disks",
        "persistentVolumeReclaimPolicy": "Retain", "local": {"path": f"/disks/{name}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }  # fmt: skip
    if claim:
        spec["claimRef"] = {"namespace": "shop", "name": claim, "uid": f"uid-{claim}"}
    phase = "Bound" if claim else "Available"
    head = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    return {**head, "spec": spec, "status": {"phase": phase}}


def claim(name: str, size: str, *, bound_to: str = "", cls: str = "disks") -> Manifest:
    done = {"pv.kubernetes.io/bind-completed": "yes"} if bound_to else {}
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "annotations": done}
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"], "storageClassName": cls, "resources": {"requests": {"storage": size}},
    }  # fmt: skip
    if bound_to:
        spec["volumeName"] = bound_to
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def pod(name: str, *claims: str, on: str = "", priority: int = 0, owner: str = "") -> Manifest:
    mounts = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": it}} for i, it in enumerate(claims)]
    spec: Manifest = {"containers": [{"name": "main", "image": "app"}], "volumes": mounts, "priority": priority}
    if on:
        spec["nodeName"] = on
    metadata: Manifest = {"name": name, "namespace": "shop"}
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner, "name": "set", "uid": "u", "controller": True}
        ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


CLASS = {
    "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disks"},
    "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
}  # fmt: skip
CLUSTER: list[Manifest] = [
    CLASS, node("a1", "a"), node("a2", "a"), node("b1", "b"),
    volume("zonal", "50Gi", ZONE, "a", claim="data"), claim("data", "40Gi", bound_to="zonal"),
    volume("local", "20Gi", "kubernetes.io/hostname", "a1", claim="cache"),
    claim("cache", "10Gi", bound_to="local"),
    volume("spare", "5Gi", "kubernetes.io/hostname", "b1"), claim("late", "4Gi"),
    pod("db", "data", on="a1"), pod("cache", "cache", on="a1"), pod("web", on="a1"),
    pod("agent", on="a1", owner="DaemonSet"), pod("late", "late"),
]  # fmt: skip


@pytest.fixture
def dump(tmp_path: Path) -> str:
    return write(tmp_path / "dump.yaml", *CLUSTER)


def write(path: Path, *objects: Manifest) -> str:
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def test_a_drained_node_sends_its_pods_elsewhere_but_for_those_whose_volumes_stay(run: Run, dump: str) -> None:
    ran = run("simulate", "--drain", "a1", "-f", dump, "-o", "json")
    told = json.loads(ran.out)
    assert ran.code == 4
    assert [it["pod"] for it in told["evicted"]] == ["shop/cache", "shop/db", "shop/web"]
    assert [(it["pod"], it["from"], it["to"]) for it in told["placed"]] == [
        ("shop/db", "a1", "a2"),
        ("shop/web", "a1", "b1"),
    ]
    (stranded,) = told["stranded"]
    assert (stranded["pod"], [(it["claim"], it["volume"]) for it in stranded["claims"]]) == (
        "shop/cache", [("shop/cache", "local")],
    )  # fmt: skip
    assert stranded["claims"][0]["reachedFrom"] == ["a1"]
    assert told["stays"] == ["shop/agent"]
    assert told["short"] == [
        {"class": "disks", "domain": "kubernetes.io/hostname=a1", "why": "out of reach", "claims": 1,
         "bytes": 10 * 2**30, "size": "10Gi"},
    ]  # fmt: skip
    text = run("simulate", "--drain", "a1", "-f", dump).out
    assert "pods evicted: 3, placed: 2, without a node: 1" in text
    assert "shop/cache is bound to local in kubernetes.io/hostname=a1: reached from a1 only" in text


def test_a_volume_is_named_where_other_rules_refuse_its_pod_too(run: Run, tmp_path: Path) -> None:
    """One replica per zone: the others' zones refuse the evicted one even if its volume could follow."""
    apart = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}}
    pods = [pod("db-0", "data-0", on="a1"), pod("db-1", on="b1")]
    for it in pods:
        it["metadata"]["labels"] = {"app": "db"}
        it["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    objects = [
        CLASS, node("a1", "a"), node("b1", "b"), volume("disk", "5Gi", ZONE, "a", claim="data-0"),
        claim("data-0", "5Gi", bound_to="disk"), *pods,
    ]  # fmt: skip
    ran = run("simulate", "--drain", "a1", "-f", write(tmp_path / "apart.yaml", *objects))
    assert ran.code == 4
    assert f"shop/data-0 is bound to disk in {ZONE}=a: reached from a1 only" in ran.out


def test_a_lost_zone_takes_its_volumes_along(run: Run, dump: str) -> None:
    told = json.loads(run("simulate", "--lose-zone", "a", "-f", dump, "-o", "json").out)
    assert [it["pod"] for it in told["placed"]] == ["shop/web"]
    assert [it["pod"] for it in told["stranded"]] == ["shop/cache", "shop/db"]
    assert {(it["domain"], it["size"]) for it in told["short"]} == {
        ("kubernetes.io/hostname=a1", "10Gi"), (f"{ZONE}=a", "40Gi"),
    }  # fmt: skip
    assert told["gone"] == ["shop/agent"]
    assert "no node reaches it" in run("simulate", "--lose-zone", "a", "-f", dump).out


def test_the_more_important_pod_takes_what_is_left(run: Run, tmp_path: Path) -> None:
    """One spare disk and two pods for it: by priority, and at equal priority by name."""
    common = [
        CLASS, node("a1", "a"), node("b1", "b"), claim("x", "4Gi"), claim("y", "4Gi"),
        volume("spare", "5Gi", "kubernetes.io/hostname", "b1"),
    ]  # fmt: skip
    for name, priority, winner in (("low", 0, "shop/p"), ("high", 7, "shop/q")):
        pods = [pod("p", "x", on="a1"), pod("q", "y", on="a1", priority=priority)]
        file = write(tmp_path / f"{name}.yaml", *common, *pods)
        told = json.loads(run("simulate", "--lose-node", "a1", "-f", file, "-o", "json").out)
        assert [it["pod"] for it in told["placed"]] == [winner]
        assert told["placed"][0]["bindings"][0]["volume"] == "spare"
        (short,) = told["short"]
        assert (short["why"], short["size"], short["claims"]) == ("missing", "4Gi", 1)


def test_room_is_not_promised_twice(run: Run, tmp_path: Path) -> None:
    made = {**CLASS, "metadata": {"name": "made"}, "provisioner": "csi.example.com"}
    driver = {
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.example.com"},
        "spec": {"storageCapacity": True},
    }  # fmt: skip
    room = {
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "metadata": {"name": "room"},
        "storageClassName": "made", "nodeTopology": {}, "capacity": "10Gi",
    }  # fmt: skip
    claims = [claim("x", "6Gi", cls="made"), claim("y", "6Gi", cls="made")]
    file = write(
        tmp_path / "c.yaml", made, driver, room, node("a1", "a"), node("b1", "b"), *claims,
        pod("p", "x", on="a1"), pod("q", "y", on="a1"),
    )  # fmt: skip
    told = json.loads(run("simulate", "--drain", "a1", "-f", file, "-o", "json").out)
    assert [it["pod"] for it in told["placed"]] == ["shop/p"]
    assert [(it["class"], it["domain"], it["size"]) for it in told["short"]] == [("made", f"{ZONE}=b", "6Gi")]


def test_added_objects_help_those_that_wait(run: Run, tmp_path: Path, dump: str) -> None:
    """Nobody is evicted; the pod that waited gets the disk of the new node, which fits it best."""
    added = write(
        tmp_path / "more.yaml", node("c1", "c"), volume("new", "4Gi", "kubernetes.io/hostname", "c1"),
        claim("extra", "1Gi"), pod("extra", "extra"),
    )  # fmt: skip
    ran = run("simulate", "--add", added, "-f", dump, "-o", "json")
    told = json.loads(ran.out)
    assert (ran.code, told["evicted"]) == (0, [])
    # The added pod comes first by name and takes the smaller disk.
    assert [(it["pod"], it["to"]) for it in told["placed"]] == [("shop/extra", "c1")]
    assert [(it["pod"], it["to"]) for it in told["waitedBefore"]["placed"]] == [("shop/late", "b1")]


@pytest.mark.parametrize(
    ("what", "stranded", "why"),
    [
        ("pv/zonal", ["shop/db"], "shop/data is bound to zonal, which is gone"),
        ("pvc/shop/cache", ["shop/cache"], 'persistentvolumeclaim "cache" not found'),
        ("node/a1", ["shop/cache"], "no node reaches it"),
        ("po/shop/cache", [], ""),
    ],
)
def test_what_is_deleted_is_missed(run: Run, dump: str, what: str, stranded: list[str], why: str) -> None:
    ran = run("simulate", "--delete", what, "-f", dump, "-o", "json")
    assert [it["pod"] for it in json.loads(ran.out)["stranded"]] == stranded
    assert ran.code == (4 if stranded else 0)
    assert why in run("simulate", "--delete", what, "-f", dump).out


def test_names_and_manifests_without_a_namespace_are_of_the_one_that_is_given(
    run: Run, tmp_path: Path, dump: str
) -> None:
    named = run("simulate", "--delete", "pvc/shop/cache", "--delete", "node/b1", "-f", dump)
    short = run("simulate", "--delete", "pvc/cache", "--delete", "node/b1", "-n", "shop", "-f", dump)
    assert (short.code, short.out) == (named.code, named.out)
    elsewhere = run("simulate", "--delete", "pvc/shop/cache", "-n", "other", "-f", dump)
    assert (elsewhere.code, elsewhere.out) == (2, "")
    assert "names namespace shop, and -n says other" in elsewhere.err
    bare = [claim("extra", "1Gi"), pod("extra", "extra")]
    for it in bare:
        del it["metadata"]["namespace"]
    added = write(
        tmp_path / "bare.yaml", node("c1", "c"), volume("new", "4Gi", "kubernetes.io/hostname", "c1"), *bare
    )
    told = json.loads(run("simulate", "--add", added, "-n", "shop", "-f", dump, "-o", "json").out)
    assert [it["pod"] for it in told["placed"]] == ["shop/extra"]


def test_a_store_is_only_read(run: Run, tmp_path: Path) -> None:
    db = str(tmp_path / "store.db")
    objects = [
        CLASS, node("a1", "a"), node("b1", "b"), volume("d", "5Gi", "kubernetes.io/hostname", "a1"),
        claim("x", "4Gi"), pod("p", "x"),
    ]  # fmt: skip
    run("migrate", "--db", db)
    run("apply", "-f", write(tmp_path / "c.yaml", *objects), "--db", db)
    run("schedule", "--db", db)
    before = run("verify", "--db", db).out
    first = run("simulate", "--drain", "a1", "--db", db, "-o", "json")
    assert [it["pod"] for it in json.loads(first.out)["stranded"]] == ["shop/p"]
    assert run("simulate", "--drain", "a1", "--db", db, "-o", "json").out == first.out
    assert run("verify", "--db", db).out == before
    more = write(tmp_path / "more.yaml", volume("e", "5Gi", "kubernetes.io/hostname", "b1"))
    told = run("simulate", "--delete", "pvc/shop/x", "--add", more, "--db", db)
    assert (told.code, 'persistentvolumeclaim "x" not found' in told.out) == (4, True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--drain", "a9"], 3, 'node "a9" is not in the manifests; there are: a'),
        (["--lose-node", "b2"], 3, 'node "b2"'),
        (["--lose-zone", "x"], 3, 'no node is in zone "x"; zones there: a, b'),
        (["--delete", "pv/gone"], 3, 'volume "gone" is not in the manifests'),
        (["--delete", "volumes/zonal"], 3, "there is no kind"),
        (["--delete", "pv"], 2, "write KIND/NAME"),
        (["--delete", "sts/shop/db"], 2, "plays no part in a decision"),
        ([], 2, "nothing to try"),
    ],
)
def test_what_is_not_there_is_named(run: Run, dump: str, words: list[str], code: int, message: str) -> None:
    ran = run("simulate", *words, "-f", dump)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


def test_what_is_tried_on_a_past_moment_sees_what_was_there_and_what_was_assumed(
    run: Run, sqlite: Database
) -> None:
    stepped = Stepped(
        sqlite, [clusters.LOCAL, clusters.node("a", **{ZONE: "x"}), clusters.node("b", **{ZONE: "y"})]
    )
    stepped.create(*(clusters.volume(f"disk-{it}", "5Gi", it) for it in "ab"))
    stepped.settle()
    stepped.create(clusters.claim("data", "4Gi"), clusters.pod("db", "data"))
    stepped.plan_and_write()
    with sqlite.read() as connection:
        midway = str(read_head(connection).position)
    stepped.settle()
    home = stepped.cluster.get("Pod", "default/db")["spec"]["nodeName"]
    store = ("--db", str(sqlite.engine.url), "-o", "json")
    # A second pod with such a claim found the volume taken, long before the first pod was there.
    more = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [clusters.claim("more", "4Gi"), clusters.pod("late", "more")],
        }
    )
    now = json.loads(run("simulate", "--drain", home, *store).out)
    assert [it["pod"] for it in now["stranded"]] == ["default/db"]
    then = json.loads(run("simulate", "--add", "-", "--as-of", midway, *store, stdin=more.encode()).out)
    assert [it["to"] for it in then["placed"] if it["pod"] == "default/late"] == [{"a": "b", "b": "a"}[home]]
    before = run("simulate", "--drain", home, "--as-of", "1", *store)
    assert (before.code, f'node "{home}" is not in the store' in before.err) == (3, True)
