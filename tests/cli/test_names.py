"""Objects are named as our own answers and kubectl print them, wherever a name is asked for."""

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def db(told_store: tuple[str, int]) -> str:
    return told_store[0]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["get", "pod/shop/waiting", "-o", "name"], "pod/waiting"),
        (["get", "pod", "shop/waiting", "-o", "name"], "pod/waiting"),
        (["get", "pod", "pod/shop/waiting", "-o", "name"], "pod/waiting"),
        (["get", "pod shop/waiting", "-o", "name"], "pod/waiting"),
        (["get", "pod/waiting", "-n", "shop", "-o", "name"], "pod/waiting"),
        (["get", "pod/db", "pv/disk-1", "claim/shop/wide", "-o", "name"], "persistentvolumeclaim/wide"),
        (["get", "persistentvolume/disk-0", "-o", "name"], "persistentvolume/disk-0"),
        (["get", "volume/disk-0", "-o", "name"], "persistentvolume/disk-0"),
        (["get", "storageclass.storage.k8s.io/local", "-o", "name"], "storageclass/local"),
        (["get", "all", "-n", "shop", "-o", "name"], "pod/waiting"),
        (["get", "po,all", "-A", "-o", "name"], "pod/db"),
        (["describe", "claim/shop/wide"], "Namespace:    shop"),
        (["describe", "pod shop/waiting"], "Name:         waiting"),
        (["history", "pod/shop/waiting"], "created"),
        (["history", "claim/shop/wide"], "created"),
        (["explain", "db"], "pod default/db"),
        (["explain", "default/db"], "pod default/db"),
        (["explain", "waiting", "-n", "shop"], "pod shop/waiting"),
        (["-n", "shop", "explain", "pod/waiting"], "pod shop/waiting"),
        (["explain", "pod shop/waiting"], "pod shop/waiting"),
        (["explain", "pod/default/db"], "pod default/db"),
        (["explain", "pod", "pod/default/db"], "pod default/db"),
        (["explain", "pod", "db", "--node", "node/node-1"], "pod default/db"),
        (["audit", "volume", "persistentvolume/disk-0"], "disk-0"),
        (["audit", "volume", "volume/disk-0"], "disk-0"),
        (["audit", "attempts", "pod/shop/waiting"], "unschedulable"),
        (["audit", "why", "pod/shop/waiting"], "unschedulable"),
        (["audit", "node", "node/node-1"], "late"),
        (["uses", "claim/shop/wide"], "waiting"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, list) else it,
)
def test_a_name_may_have_its_kind_and_namespace(run: Run, db: str, words: list[str], shown: str) -> None:
    ran = run(*words, "--db", db)
    assert ran.code in (0, 4), ran.err
    assert shown in ran.out


def test_a_binding_is_named_by_what_is_printed_or_the_beginning_of_it(run: Run, db: str) -> None:
    printed = run("get", "bindings", "-A", "-o", "name", "--db", db).out.split()[0]
    id_ = printed.removeprefix("binding/")
    whole = run("get", "binding", id_, "-o", "json", "--db", db).out
    assert run("get", printed, "-o", "json", "--db", db).out == whole
    others = [
        it.removeprefix("binding/") for it in run("get", "bindings", "-A", "-o", "name", "--db", db).out.split()
    ]
    start = next(
        id_[:size] for size in range(4, len(id_) + 1) if sum(it.startswith(id_[:size]) for it in others) == 1
    )
    assert run("get", "binding", start, "-o", "json", "--db", db).out == whole
    assert run("describe", f"binding/{start}", "--db", db).code == 0
    assert run("history", "binding", start, "--db", db).out == run("history", printed, "--db", db).out
    assert run("audit", "cause", "--binding", printed, "--db", db).code == 0
    attempt = run("get", "attempts", "-A", "-o", "name", "--db", db).out.split()[0]
    assert run("audit", "why", attempt, "--db", db).code == 0
    if (common := id_[:4]) != start:
        ran = run("get", "binding", common, "--db", db)
        assert (ran.code, "give more of its id" in ran.err) == (3, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["audit", "volume", "pod/db"], 2, "is a pod, and a persistentvolume is asked for"),
        (["describe", "pod/shop/waiting", "-n", "default"], 2, "names namespace shop"),
        (["get", "pod/db", "-A"], 2, "leave -A out"),
        (["get", "pod", "wrong/shop/waiting"], 3, "not found"),
        (["delete", "binding/abc"], 2, "are history and stay"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, list) else "",
)
def test_what_contradicts_itself_is_reported(run: Run, db: str, words: list[str], code: int, said: str) -> None:
    ran = run(*words, "--db", db)
    assert (ran.code, said in ran.err) == (code, True), ran.err
