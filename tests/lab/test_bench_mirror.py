"""The bench of the mirror: every row does what its name says, on a cluster of bytes."""

from volsched.cluster.kubernetes.watch_lines import unchanged_key, watch_line
from volsched.cluster.projection import project
from volsched.kube.kinds import key_of
from volsched.lab.bench.encoded_server import kind_of_change, life_lines, listed_lines
from volsched.lab.bench.mirror import FOLLOWED, MirrorLoad, bench_mirror
from volsched.log.database import Database


def test_a_cluster_of_bytes_is_listed_restarted_changed_and_outlived(sqlite: Database) -> None:
    load = MirrorLoad(pods=200, rate=200, burst=400, seconds=1, burst_seconds=1, lives=100)
    first, restart, sustained, burst, lives, returns = (row.as_json() for row in bench_mirror(sqlite, load))
    assert first["objects"] == restart["objects"] == 410
    # Volumes, claims, nodes and the pods with claims; who attached, and nothing of the others.
    assert first["events"] == 1 + 10 + 100 + 100 + 30
    assert restart["events"] == len(FOLLOWED), "a gap for every kind, and no object is news"
    assert (sustained["objects"], burst["objects"]) == (200, 400)
    assert sustained["lagP99Seconds"] is not None
    changed = [it for it in range(200) if kind_of_change(it) != "Node"]
    assert 0 < sustained["events"] < len(changed)
    assert lives["logGBaDay"] is not None
    # Of 15 pods with a claim each; what a probe says of a container is no event.
    assert lives["events"] == 15 * (6 + 4 + 3 + 3), "pod, claim, volume, attachment"
    assert returns["events"] == 15 * (6 + 3)


def test_its_lines_are_those_of_a_server() -> None:
    for kind in FOLLOWED:
        for line in listed_lines(kind, 100):
            made = watch_line(line)
            key, names = key_of(kind, made.object), made.object["metadata"]
            assert project(kind, made.object) is not None
            assert unchanged_key(line, {key: (names["uid"], names["resourceVersion"])}) == key
    told = [(kind, watch_line(line)) for kind, line in life_lines(20, 0)]
    versions = [int(it.version) for _, it in told]
    assert versions == sorted(set(versions))
    assert [it.type for kind, it in told if kind == "Pod"].count("DELETED") == 20
