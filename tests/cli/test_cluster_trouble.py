"""Everything that can be wrong between a user and a cluster: one line with its remedy, and the right code."""

import base64
import socket
import ssl
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.given_cluster import GivenCluster
from tests.support.odd_server import READS, odd_server
from tests.support.store_samples import NOW
from volsched.api.access.tls import Authority, make_authority
from volsched.cluster.observer import ClusterObserver
from volsched.log.database import open_database
from volsched.log.reads.lookups import keys_of
from volsched.log.store import migrate_store

Kubeconfig = Callable[..., Path]


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Kubeconfig:
    def written(url: str, *, user: dict[str, Any] | None = None, ca: Authority | None = None) -> Path:
        cluster = {"server": url}
        if ca is not None:
            cluster["certificate-authority-data"] = base64.b64encode(ca.pem).decode()
        file = tmp_path / "kubeconfig"
        config = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user or {}}],
            "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "prod",
        }
        file.write_text(yaml.safe_dump(config))
        return file

    return written


LIVE, OBSERVE = ("get", "pods", "-A", "--live"), ("observe", "--port", "0")
MET = {
    "expired token": (
        {"status": 401},
        1,
        ("does not accept our credentials; ", 'put a new token into context "prod" of the kubeconfig'),
    ),
    "missing verbs": (
        {"may": frozenset()},
        1,
        ("volsched manifests --mode observe",),
    ),
    "an overloaded server": ({"status": 429}, 1, ("(429); the server is overloaded: try again",)),
    "a server that breaks": ({"status": 500}, 1, ("(500); the server could not answer: try again",)),
}


@pytest.mark.parametrize("words", [LIVE, OBSERVE], ids=["live", "observe"])
@pytest.mark.parametrize("trouble", MET)
def test_a_server_that_does_not_answer_is_reported_with_the_remedy(
    run: Run, kubeconfig: Kubeconfig, tmp_path: Path, trouble: str, words: tuple[str, ...]
) -> None:
    odd, code, said = MET[trouble]
    with odd_server(**odd) as server:
        file = kubeconfig(server.url, user={"token": "t"})
        store = () if words is LIVE else ("--db", str(tmp_path / "o.db"))
        result = run(*words, "--kubeconfig", str(file), *store)
    assert result.code == code, result.err
    (line,) = (it for it in result.err.splitlines() if it.startswith("error:"))
    for part in said:
        assert part in line
    assert not (tmp_path / "o.db").exists(), "nothing is made before the cluster is known"


@pytest.mark.parametrize("words", [LIVE, OBSERVE], ids=["live", "observe"])
def test_without_a_kubeconfig_the_places_are_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...]
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    result = run(*words)
    assert result.code == 2, result.err
    assert "kubeconfig" in result.err
    assert "--kubeconfig" in result.err


@pytest.mark.parametrize("words", [LIVE, OBSERVE], ids=["live", "observe"])
def test_nobody_listens(run: Run, kubeconfig: Kubeconfig, tmp_path: Path, words: tuple[str, ...]) -> None:
    store = () if words is LIVE else ("--db", str(tmp_path / "o.db"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    result = run(*words, "--kubeconfig", str(kubeconfig(f"http://127.0.0.1:{port}")), *store)
    assert result.code == 1
    assert not (tmp_path / "o.db").exists(), "nothing is made before the cluster is known"
    assert "cannot be reached" in result.err
    assert 'is context "prod" the right one?' in result.err


@pytest.mark.parametrize("words", [LIVE, OBSERVE], ids=["live", "observe"])
def test_another_authority(run: Run, kubeconfig: Kubeconfig, tmp_path: Path, words: tuple[str, ...]) -> None:
    store = () if words is LIVE else ("--db", str(tmp_path / "o.db"))
    theirs, ours = (make_authority(tmp_path / name) for name in ("theirs", "ours"))
    issued = theirs.for_server(("127.0.0.1",), lasts=timedelta(hours=1))
    pair = tmp_path / "pair.pem"
    pair.write_bytes(issued.certificate + issued.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    with odd_server(tls=context) as server:
        result = run(*words, "--kubeconfig", str(kubeconfig(server.url, ca=ours)), *store)
        assert result.code == 1
        assert 'is not of the CA that context "prod" trusts' in result.err
        assert "fetch it again" in result.err
        assert run(*LIVE, "--kubeconfig", str(kubeconfig(server.url, ca=theirs))).code == 0


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"minor": "28+"}, "the server is 1.28, older than 1.29"),
        ({"date": "Sun, 01 Jan 2023 00:00:00 GMT"}, "ahead of the server's; set both by NTP"),
        ({"unserved": frozenset({"CSIStorageCapacity"})}, "has no CSIStorageCapacity; answering without"),
    ],
    ids=["an old server", "clocks apart", "a kind that is not served"],
)
def test_what_works_and_should_not_stay_so_is_a_warning(
    run: Run, kubeconfig: Kubeconfig, odd: dict[str, Any], said: str
) -> None:
    with odd_server(**odd) as server:
        result = run(*LIVE, "--kubeconfig", str(kubeconfig(server.url)))
    assert result.code == 0, result.err
    (line,) = (it for it in result.err.splitlines() if it.startswith("warning:"))
    assert said in line


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"minor": "28+"}, "warning: the server is 1.28, older than 1.29"),
        ({"date": "Sun, 01 Jan 2023 00:00:00 GMT"}, "ahead of the server's; set both by NTP"),
        ({"unserved": frozenset({"CSIStorageCapacity"})}, " CSIStorageCapacity     not served"),
    ],
    ids=["an old server", "clocks apart", "a kind that is not served"],
)
def test_an_observer_is_warned_before_it_learns_which_verbs_it_lacks(
    run: Run, kubeconfig: Kubeconfig, tmp_path: Path, odd: dict[str, Any], said: str
) -> None:
    with odd_server(**odd, may=frozenset()) as server:
        words = (*OBSERVE, "--kubeconfig", str(kubeconfig(server.url)), "--db", str(tmp_path / "o.db"))
        result = run(*words)
    assert result.code == 1
    assert said in result.err
    (line,) = (it for it in result.err.splitlines() if it.startswith("error:"))
    assert line.startswith("error: permission is missing to list Node, watch Node, get Namespace, ")
    assert ("CSIStorageCapacity" in line) is not bool(odd.get("unserved"))


@pytest.mark.parametrize(
    ("verb", "named"), [("patch", "patch Node"), ("deletecollection", "deletecollection Node")]
)
def test_rights_to_write_are_refused_by_name(
    run: Run, kubeconfig: Kubeconfig, tmp_path: Path, verb: str, named: str
) -> None:
    with odd_server(may=READS | {verb}) as server:
        words = (*OBSERVE, "--kubeconfig", str(kubeconfig(server.url)), "--db", str(tmp_path / "o.db"))
        result = run(*words)
    assert result.code == 1
    assert f"an observer must not be able to write, and this user may {named}" in result.err
    assert "--allow-excess" in result.err


def test_another_cluster_in_the_place_of_the_one_that_was_followed(
    run: Run, kubeconfig: Kubeconfig, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'o.db'}"
    migrate_store(store)
    with closing(open_database(store)) as database:
        cluster = GivenCluster(uid="cluster-1")
        cluster.put("Node", {"metadata": {"name": "n1"}})
        ClusterObserver(database, cluster).step(NOW)
    with odd_server(uid="cluster-2") as server:
        result = run(*OBSERVE, "--kubeconfig", str(kubeconfig(server.url)), "--db", str(tmp_path / "o.db"))
    assert result.code == 7, result.err
    (line,) = (it for it in result.err.splitlines() if it.startswith("error:"))
    assert "the store mirrors cluster cluster-1 (given)" in line
    assert "is cluster cluster-2" in line
    assert "choose the context with --context, or a store of its own with --db" in line
    with closing(open_database(store)) as database, database.read() as connection:
        assert keys_of(connection, "node") == ["n1"], "nothing is lost"
