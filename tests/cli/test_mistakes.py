"""Mistakes that people make, each with its answer: the exit code, what is wrong, and what to do about it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

NODE: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
CLAIM: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "x"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
TYPO = {**CLAIM, "spec": {**CLAIM["spec"], "storageClass": "fast"}}
MISSPELT = {**CLAIM, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"request": {"storage": "1Gi"}}}}
ELSEWHERE = {**CLAIM, "metadata": {"name": "x", "namespace": "other"}}
AMOUNT = {**CLAIM, "spec": {**CLAIM["spec"], "resources": {"requests": {"storage": "1GB"}}}}
SET: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "db"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    },
}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}

MISTAKES: list[tuple[str, str | None, int, str]] = [
    # Verbs and options that are misspelt, missing or in the wrong place.
    ("gett pods", None, 2, "Did you mean 'get'?"),
    ("audit rolbacks", None, 2, "Did you mean 'rollbacks'?"),
    ("help nope", None, 2, "Try 'volsched -h' for help"),
    ("get -v", None, 2, "Missing argument 'KIND'"),
    ("get pods --namepsace shop", None, 2, "Possible options: --all-namespaces, --namespace"),
    ("get pods --db", None, 2, "requires an argument"),
    ("--log-level loud get pods", None, 2, "'debug', 'info', 'warning', 'error'"),
    ("apply pod.yaml", None, 2, "manifests are given with -f: volsched apply -f pod.yaml"),
    ("validate -", None, 2, "volsched validate -f -"),
    ("bindings", None, 2, "volsched get bindings"),
    ("cause 12", None, 2, "volsched audit cause"),
    ("diff -v", None, 2, "Missing option '--from'"),
    ("release disk-0", None, 2, "Missing option '--reason'"),
    ("history pod db --limit 0", None, 2, "greater than or equal to 1"),
    ("history pod db --limit many", None, 2, "should be a valid integer"),
    ("effects list --state odd", None, 2, "'ready', 'leased', 'parked'"),
    ("token create ada --role king", None, 2, "'viewer', 'auditor', 'operator'"),
    ("up --port 99999", None, 2, "less than or equal to 65535"),
    # Verbs that kubectl has.
    ("scale sts db --replicas=3", None, 2, "kubectl -s http://127.0.0.1:8700 scale"),
    ("rollout restart sts/db", None, 2, "is a verb of kubectl"),
    ("cluster-info", None, 2, "volsched up, then kubectl"),
    ("drain node-1", None, 2, "volsched simulate --drain NODE says what would happen"),
    ("logs db -f", None, 2, "volsched runs none; see volsched describe pod NAME"),
    ("diff -f pod.yaml", None, 2, "volsched apply --dry-run -f FILE"),
    ("events", None, 2, "volsched get events"),
    ("completion bash", None, 2, "volsched --install-completion"),
    # Kinds, names and namespaces.
    ("get pods shop", None, 3, "shop is a namespace: volsched get pods -n shop"),
    ("get podz", None, 3, "did you mean pod or pods or po?"),
    ("get pod dbb", None, 3, "did you mean default/db"),
    ("get pod waiting", None, 3, "did you mean shop/waiting?"),
    (
        "get pods -n shpo",
        None,
        0,
        "there are no pods in namespace shpo; did you mean shop? -A shows those of every",
    ),
    ("get pods -A -n shop", None, 2, "-n and -A contradict each other; give one of them"),
    ("get pod shop/waiting -n default", None, 2, "give one of them"),
    ("get pods,pvc db", None, 2, "ask for db of one kind"),
    ("get node node-0", None, 3, "see it with --as-of"),
    ("describe pod", None, 2, "volsched describe pod NAME"),
    ("history pod", None, 2, "give KIND NAME, such as pod NAME"),
    ("history 45", None, 3, "causes and consequences, is: volsched audit cause 45"),
    ("history pv nope", None, 3, "volsched get persistentvolumes"),
    ("explain pod nope", None, 3, "pods there: "),
    ("explain waiting", None, 3, "did you mean shop/waiting?"),
    ("explain pvc/wide", None, 3, "see volsched uses persistentvolumeclaim/wide"),
    ("explain pvc wide", None, 2, "is a persistentvolumeclaim, and a pod is asked for"),
    ("explain deployment x", None, 3, 'there is no kind "deployment"'),
    ("explain pod db --node nope", None, 3, "did you mean node-1"),
    ("simulate --drain nope", None, 3, "there are: node-1"),
    ("uses pod db", None, 2, "ask for a pvc or a pv"),
    ("audit volume pod/db", None, 2, "a persistentvolume is asked for"),
    ("audit volume pod db", None, 2, "a persistentvolume is asked for"),
    ("audit why pod nope", None, 3, "nope"),
    ("audit cause soon", None, 3, 'there is no binding "soon"'),
    ("audit cause 0123456789ab", None, 3, 'there is no binding "0123456789ab"'),
    ("history 0123456789ab", None, 3, 'there is no binding "0123456789ab"'),
    ("audit cause 99999", None, 3, "volsched history shows the positions"),
    ("release nope --reason x", None, 3, "see volsched orphans"),
    ("bind claim nope --node node-1", None, 3, "see volsched get pvc -A"),
    ("bind claim shop/wide --node nope", None, 3, "see volsched get nodes"),
    ("effects retry nope", None, 3, "volsched effects list --state parked"),
    ("leases free nope --reason x", None, 3, "see volsched leases list"),
    ("reservations confirm nope", None, 3, "see volsched reservations list"),
    ("token revoke ada", None, 3, "see volsched token list"),
    ("example show nope", None, 3, "there are legacy-zones"),
    # Forms, selectors and paths.
    ("get pods -o jsn", None, 2, "is not one of table, wide, json"),
    ("get pods -o jsonpath={.a", None, 2, "write {.metadata.name}"),
    ("get pods -o custom-columns=NAME", None, 2, "write HEADER:PATH"),
    ("get pods --sort-by .spec.nope", None, 2, "see what they have with -o yaml"),
    ("get pods --field-selector status.phas=Running", None, 2, "did you mean status.phase?"),
    ("get pods -l tier=db=x", None, 2, "write KEY=VALUE"),
    ("describe pod db -o csv", None, 2, "use -o table, json or yaml"),
    # Times.
    ("get pods --as-of tomorrow", None, 2, "yesterday 14:00 or last tuesday"),
    ("get pods --as-of 2999-01-01", None, 2, "give a time that has passed"),
    ("get pods --as-of 99999", None, 3, "the log ends at"),
    ("get pods -w --as-of 3", None, 2, "give one of them"),
    ("history pod db --since soon", None, 2, "2h or 1h30m for ago"),
    ("diff --from 10 --to 5", None, 2, "swap them"),
    ("orphans --older-than soon", None, 2, "such as 7d or 1h30m"),
    # Manifests.
    ("apply -v", None, 2, "say which manifests: -f FILE"),
    ("apply -f nofile.yaml", None, 2, "check the path and its permissions"),
    ("apply -f -", "a: [b\n c: d", 2, "this is not YAML: line 2"),
    ("apply -f -", "", 2, "give at least one manifest"),
    ("apply -f -", "- a\n", 1, "write a mapping with apiVersion, kind and metadata"),
    ("apply -f -", "metadata: {name: x}", 1, "kind: is required"),
    ("apply -f -", json.dumps(SECRET), 1, "apply, create and delete with --skip-foreign"),
    ("apply -f -", json.dumps(TYPO), 1, "did you mean spec.storageClassName?"),
    ("apply -f -", json.dumps(MISSPELT), 1, "did you mean spec.resources.requests?"),
    ("apply -n shop -f -", json.dumps(ELSEWHERE), 2, "leave -n out, or choose that of the object"),
    ("delete -n shop -f -", json.dumps(ELSEWHERE), 2, "leave -n out, or choose that of the object"),
    ("apply -f -", json.dumps(AMOUNT), 1, "write for example 10Gi"),
    ("apply -f ftp://example.org/x.yaml", None, 2, "http:// and https:// work"),
    ("explain pod db --as-of 3 -k .", None, 2, "it goes with none of -f, -k and --node"),
    ("delete -f -", json.dumps(SECRET), 1, "known are Node, Namespace"),
    ("explain pod db-9 -f -", json.dumps(SET), 3, "is not in the manifests"),
    ("explain pod db-0 -f -", json.dumps(SET), 2, "there is no Node in the manifests"),
    ("create -f -", json.dumps(NODE), 7, "use another name, or update it"),
    ("apply -f - --dry-run=maybe", json.dumps(NODE), 2, "'none', 'client', 'server'"),
    ("delete -v", None, 2, "KIND NAME, or -f FILE"),
    ("delete pod", None, 2, "volsched delete pod NAME"),
    ("delete pod nope -n shop", None, 3, "volsched get pods -A"),
    ("delete binding x", None, 2, "see volsched recover"),
    ("delete pod db --reason ' '", None, 2, "leave --reason out"),
    ("simulate -v", None, 2, "give --drain, --lose-node"),
]
PLACES: list[tuple[str, int, str]] = [
    ("get pods --db {tmp}/nothing.db", 1, "nothing here yet"),
    ("get pods --db mysql://x/y", 1, "there are sqlite and postgresql"),
    ("get pods --db postgresql://u:p@127.0.0.1:1/x", 1, "start it, or check"),
    ("get pods --db {tmp}", 1, "check the directory and permissions"),
    ("get pods --db {text}", 1, "this is not an SQLite database"),
    ("migrate --db {tmp}/none/x.db", 1, "create it, or name another file"),
    ("get pods --server 127.0.0.1:8700", 2, "write https://HOST:PORT"),
    ("get pods --server http://example.org:80", 2, "write https://example.org:80"),
    ("get pods --server http://127.0.0.1:1", 1, "is it running (volsched up"),
    ("get pods --server http://127.0.0.1:1 --db x.db", 2, "name two places; give one of them"),
    ("get pods --server https://127.0.0.1:1 --token-file nofile", 2, "give the file of a token"),
    ("get pods --kubeconfig nofile", 2, "check the path and its permissions"),
    ("get pods --live --kubeconfig nofile", 2, "name one with --kubeconfig"),
    ("backup x --server http://127.0.0.1:1", 2, "run it where that is, with --db URL"),
    ("import-log nofile --db {tmp}/new.db", 2, "check the path and its permissions"),
    ("conform nofile", 2, "give a .jsonl"),
]


@pytest.fixture
def db(told_shop: str) -> str:
    return told_shop


def words_of(line: str) -> list[str]:
    return line.replace("' '", "\0").replace(" ", "\n").replace("\0", " ").split("\n")


@pytest.mark.parametrize(
    ("line", "stdin", "code", "said"), MISTAKES, ids=lambda it: it if isinstance(it, str) else ""
)
def test_a_mistake_is_answered_with_its_remedy(
    run: Run, db: str, monkeypatch: pytest.MonkeyPatch, line: str, stdin: str | None, code: int, said: str
) -> None:
    # Not --db: some of the mistakes are about it, and some verbs have none.
    monkeypatch.setenv("VOLSCHED_DATABASE_URL", f"sqlite:///{db}")
    ran = run(*words_of(line), stdin=None if stdin is None else stdin.encode())
    assert ran.code == code, ran.err
    assert said in " ".join(ran.err.split()), ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(("line", "code", "said"), PLACES, ids=lambda it: it if isinstance(it, str) else "")
def test_a_wrong_place_is_reported_with_the_right_one(
    run: Run, tmp_path: Path, line: str, code: int, said: str
) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("these are notes, and more of them than a header of SQLite has; " * 9)
    ran = run(*line.format(tmp=tmp_path, text=text).split())
    assert ran.code == code, ran.err
    assert said in " ".join(ran.err.split()), ran.err
    assert "Traceback" not in ran.err


def test_there_are_at_least_forty_of_them() -> None:
    assert len(MISTAKES) + len(PLACES) >= 40
