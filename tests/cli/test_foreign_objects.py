"""What people have in their hands: dumps with kinds that are not ours, twice the same, directories, addresses."""

import http.server
import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, claim, node, pod, volume

CLUSTER = (LOCAL, node("n1"), volume("disk", "5Gi", "n1"), claim("data", "4Gi"), pod("db", "data"))
FOREIGN: tuple[dict[str, Any], ...] = (
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "Yg=="}},
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 1}},
    {"apiVersion": "longhorn.io/v1beta2", "kind": "Node", "metadata": {"name": "n1"}, "spec": {}},
    {"apiVersion": "v1", "kind": "ConfigMapList", "items": [{"metadata": {"name": "a"}}]},
)
SKIPPED = "skipped 4 objects of kinds that volsched does not know"


def listed(*manifests: dict[str, Any]) -> bytes:
    return yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": list(manifests)}).encode()


@pytest.mark.parametrize(
    "words",
    [["validate", "-f", "-"], ["explain", "pod", "db", "-f", "-"], ["import", "-f", "-"]],
    ids=lambda words: words[0],
)
def test_foreign_kinds_are_passed_over_and_told_in_a_line(run: Run, tmp_path: Path, words: list[str]) -> None:
    store = ["--db", str(tmp_path / "new.db")] if words[0] == "import" else []
    ran = run(*words, *store, stdin=listed(*FOREIGN, *CLUSTER))
    assert ran.code == 0, ran.err
    (line,) = (it for it in ran.err.splitlines() if "skipped" in it)
    assert SKIPPED in line
    assert "1 Node.longhorn.io" in line


def test_apply_refuses_them_unless_told(run: Run, tmp_path: Path) -> None:
    db = str(tmp_path / "new.db")
    refused = run("apply", "-f", "-", "--db", db, stdin=listed(*FOREIGN, *CLUSTER))
    assert (refused.code, "--skip-foreign" in refused.err) == (1, True)
    assert refused.err.count("known are Node, Namespace,") == 1
    ran = run("apply", "--skip-foreign", "-f", "-", "--db", db, stdin=listed(*FOREIGN, *CLUSTER))
    assert (ran.code, "pod/default/db created" in ran.out, SKIPPED in ran.err) == (0, True, True)
    gone = run("delete", "--skip-foreign", "-f", "-", "--db", db, stdin=listed(*FOREIGN, *CLUSTER))
    assert (gone.code, "pod/default/db deleted" in gone.out, SKIPPED in gone.err) == (0, True, True)


def test_a_kind_that_is_nearly_ours_is_a_slip(run: Run) -> None:
    ran = run("validate", "-f", "-", stdin=listed({**node("n1"), "kind": "Nodes"}, *CLUSTER))
    assert (ran.code, "did you mean Node?" in ran.err) == (1, True)
    old = {**LOCAL, "apiVersion": "storage.k8s.io/v1beta1", "metadata": {"name": "old"}}
    assert "write storage.k8s.io/v1" in run("validate", "-f", "-", stdin=listed(old)).err


def test_of_an_object_that_stands_there_twice_the_later_version_counts(run: Run) -> None:
    def at(version: str, **labels: str) -> dict[str, Any]:
        made = node("n1")
        made["metadata"] |= {"uid": "u1", "resourceVersion": version}
        made["metadata"]["labels"] |= labels
        return made

    asking = pod("db")
    asking["spec"]["nodeSelector"] = {"disk": "yes"}
    ran = run("explain", "pod", "db", "-f", "-", stdin=listed(at("9"), at("10", disk="yes"), at("8"), asking))
    assert (ran.code, "2 that appear in the input twice" in ran.err) == (0, True)
    other = at("9") | {"metadata": {"name": "n1", "uid": "u2"}}
    assert "stands in" in run("explain", "pod", "db", "-f", "-", stdin=listed(at("9"), other, asking)).err


def test_the_directory_of_a_support_dump_can_be_given_as_it_is(run: Run, tmp_path: Path) -> None:
    """As a must-gather and a Velero backup are: an object a file, lists beside them, and much that is neither."""
    dump, disk = tmp_path / "dump", json.dumps(CLUSTER[2] | {"metadata": CLUSTER[2]["metadata"] | {"uid": "u7"}})
    for name, text in {
        "cluster-scoped-resources/core/nodes/n1.yaml": yaml.safe_dump(CLUSTER[1]),
        "resources/persistentvolumes/cluster/disk.json": disk,
        "resources/persistentvolumes/v1-preferredversion/cluster/disk.json": disk,
        "namespaces/default/all.yaml": listed(LOCAL, *CLUSTER[3:], *FOREIGN).decode(),
        "logs/audit.json": '{"kind": "Event", ',
        "namespaces/default/jobs.yaml": '{"apiVersion": "batch/v1", "kind": "JobList", "items": []}',
        "values.yaml": "replicas: 3\n",
        "version": "v1.30\n",
    }.items():
        (dump / name).parent.mkdir(parents=True, exist_ok=True)
        (dump / name).write_text(text)
    ran = run("import", "-f", str(dump), "--db", str(tmp_path / "new.db"))
    assert ran.code == 0, ran.err
    assert SKIPPED in ran.err
    assert "1 that appear in the input twice and 2 files without objects" in ran.err
    assert "Job" not in ran.err
    assert "1 Node, 1 PersistentVolume, 1 PersistentVolumeClaim, 1 Pod, 1 StorageClass" in ran.out


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        (("spec", "storageClass"), "spec.storageClassName"),
        (("storageClassName",), "spec.storageClassName"),
        (("spec", "accessMode"), "spec.accessModes"),
        (("metadata", "lables"), "metadata.labels"),
    ],
)
def test_an_unknown_field_is_refused_with_the_one_that_was_meant(
    run: Run, tmp_path: Path, field: tuple[str, ...], meant: str
) -> None:
    wrong = claim("data", "4Gi")
    inner = wrong if len(field) == 1 else wrong[field[0]]
    inner[field[-1]] = "fast" if "torage" in field[-1] else {}
    told = f'unknown field "{".".join(field)}" (did you mean {meant}?)'
    for words in (["validate"], ["apply"], ["create"], ["import", "--strict"]):
        store = [] if words == ["validate"] else ["--db", str(tmp_path / "new.db")]
        ran = run(*words, "-f", "-", *store, stdin=yaml.safe_dump(wrong).encode())
        assert (ran.code, told in ran.err) == (1, True), ran.err
    for words in (["explain", "pod", "db"], ["import", "--db", str(tmp_path / "dump.db")]):
        ran = run(*words, "-f", "-", stdin=listed(wrong, node("n1"), pod("db")))
        assert (ran.code, told in ran.err) == (0, True), ran.err


def test_an_unknown_field_is_named_though_the_object_has_other_faults(run: Run, tmp_path: Path) -> None:
    """`resources.request` leaves the claim without an amount, which alone would not say why."""
    wrong, other = claim("data", "4Gi"), claim("more", "4Gi")
    wrong["spec"]["resources"] = {"request": {"storage": "4Gi"}}
    other["spec"]["storageClass"] = "fast"
    told = 'unknown field "spec.resources.request" (did you mean spec.resources.requests?)'
    alone = 'unknown field "spec.storageClass"'
    for words in (["validate"], ["apply", "--db", str(tmp_path / "new.db")]):
        ran = run(*words, "-f", "-", stdin=listed(wrong, other))
        first, second, third = ran.err.replace("\n\n", "\n").splitlines()
        assert (ran.code, told in first, "Required value" in second, alone in third) == (1, True, True, True)
    # Of a dump, whose cluster may be newer than we are, only the object that is refused anyway.
    ran = run("explain", "pod", "db", "-f", "-", stdin=listed(wrong, other, node("n1"), pod("db")))
    assert (ran.code, told in ran.err, alone in ran.err) == (1, True, False), ran.err


def test_objects_that_name_no_namespace_go_where_n_says(run: Run, tmp_path: Path) -> None:
    """As `helm template` prints them."""
    store = ("--db", str(tmp_path / "new.db"))
    text = yaml.safe_dump_all([*CLUSTER, {**FOREIGN[1]}]).replace("namespace: default", "").encode()
    assert run("validate", "-n", "shop", "-f", "-", stdin=text).code == 0
    explained = run("explain", "pod", "db", "-n", "shop", "-f", "-", stdin=text)
    assert (explained.code, "pod shop/db" in explained.out) == (0, True), explained.err
    made = run("-n", "shop", "apply", "--skip-foreign", "-f", "-", *store, stdin=text)
    assert (made.code, "pod/shop/db created" in made.out, "node/n1 created" in made.out) == (0, True, True)
    elsewhere = yaml.safe_dump({**pod("a"), "metadata": {"name": "a", "namespace": "shop"}}).encode()
    refused = run("create", "-n", "other", "-f", "-", *store, stdin=elsewhere)
    assert (refused.code, 'Pod "shop/a" is not of namespace "other"' in refused.err) == (2, True), refused.err
    gone = run("delete", "-n", "shop", "--skip-foreign", "-f", "-", *store, stdin=text)
    assert (gone.code, "pod/shop/db deleted" in gone.out) == (0, True), gone.err


HELM = """\
Release "web" has been upgraded. Happy Helming!
NAME: web
LAST DEPLOYED: Wed Nov 18 10:00:00 2026
NAMESPACE: shop
HOOKS:
---
# Source: web/templates/test.yaml
apiVersion: v1
kind: Pod
metadata: {name: web-test, annotations: {helm.sh/hook: test}}
MANIFEST:
---
# Source: web/templates/claim.yaml
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}

NOTES:
1. Visit: http://web: use
\techo {
"""


def test_what_helm_prints_of_a_release_is_its_manifest_in_its_namespace(run: Run, tmp_path: Path) -> None:
    ran = run("import", "-f", "-", "--db", str(tmp_path / "new.db"), stdin=HELM.encode())
    assert (ran.code, ran.out) == (0, "imported 1 Namespace, 1 PersistentVolumeClaim\n"), ran.err
    assert "namespace shop did not exist" in ran.err
    assert "1 Deployment" in ran.err
    wrong = run("validate", "-f", "-", stdin=HELM.replace("Modes: [", "Modes: ]").encode())
    line = 1 + next(at for at, it in enumerate(HELM.splitlines()) if it.startswith("spec:"))
    assert (wrong.code, f"line {line}" in wrong.err) == (2, True), wrong.err


def test_other_schemes_than_http_are_refused_with_the_reason(run: Run) -> None:
    ran = run("validate", "-f", "ftp://example.org/x.yaml")
    assert (ran.code, "http:// and https:// work" in ran.err) == (2, True)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "node.yaml").write_text(yaml.safe_dump(node("n1")))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(tmp_path / "site"))

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_address_is_as_good_as_a_file(run: Run, site: str) -> None:
    assert run("validate", "-f", f"{site}/node.yaml").out == "all valid: 1 Node\n"
    gone = run("validate", "-f", f"{site}/gone.yaml")
    assert (gone.code, "404" in gone.err) == (2, True)
    nobody = run("validate", "-f", "http://127.0.0.1:1/x.yaml")
    assert (nobody.code, "cannot be read" in nobody.err) == (2, True)


def test_kustomize_is_asked_where_there_is_one(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    none = run("validate", "-k", str(tmp_path))
    assert (none.code, "needs kustomize or kubectl" in none.err) == (2, True)
    (tmp_path / "made.yaml").write_text(yaml.safe_dump(node("n1")))
    program = programs / "kubectl"
    program.write_text('#!/bin/sh\n[ "$1" = kustomize ] && exec /bin/cat "$2/made.yaml"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert run("validate", "-k", str(tmp_path)).out == "all valid: 1 Node\n"
    assert "is no directory" in run("validate", "-k", str(tmp_path / "none")).err
    (tmp_path / "made.yaml").write_bytes(listed(*CLUSTER))
    assert "fits on n1" in run("explain", "pod", "db", "-k", str(tmp_path)).out
    drained = run("simulate", "--drain", "n1", "-k", str(tmp_path))
    assert "if we drain node n1" in drained.out
    said = r'E1118 11:14:08.325158   26669 run.go:72] "command failed" err="no file in \"a\""'
    program.write_text(f"#!/bin/sh\ncat >&2 <<'.'\n{said}\n.\nexit 1\n".replace("cat", "/bin/cat"))
    failed = run("validate", "-k", str(tmp_path))
    assert (failed.code, "run.go" in failed.err, ': no file in "a"' in failed.err) == (
        2, False, True,
    )  # fmt: skip


def test_a_kustomization_that_f_cannot_build_is_pointed_to_k(run: Run, tmp_path: Path) -> None:
    base, db = tmp_path / "base", str(tmp_path / "new.db")
    base.mkdir()
    (base / "node.yaml").write_text(yaml.safe_dump(node("n1")))
    kustomization = base / "kustomization.yaml"
    kustomization.write_text("namePrefix: a-\nresources: [node.yaml]\n")
    for words in (["apply"], ["create"], ["delete"], ["import", "--strict"]):
        refused = run(*words, "-f", str(base), "--db", db)
        assert (refused.code, f"give -k {base}" in refused.err) == (2, True), refused.err
    assert run("validate", "-f", str(kustomization)).code == 2
    skipped = run("validate", "-f", str(base))
    assert (skipped.code, skipped.out) == (0, "all valid: 1 Node\n")
    assert f"note: skipped {kustomization}" in skipped.err
    assert f"-k {base}" in skipped.err


def test_without_any_manifests_it_says_how(run: Run) -> None:
    ran = run("import", "--strict")
    assert (ran.code, "-f FILE|DIR|URL|-" in ran.err) == (2, True)
