"""`token`, `certs`, `kubeconfig` and `serve` with TLS, as people call them; and kubectl with what they write."""

import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from cryptography import x509
from typer.testing import CliRunner

from tests.api.access.secured import issue_token
from tests.support.clusters import node, pod
from tests.support.kubectl import KUBECTL, needs_kubectl
from tests.support.patience import HANG_SECONDS
from tests.support.serving import said_url
from volsched.api.access.callers import Role
from volsched.cli.app import app
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.log.reads.tail import tail
from volsched.log.tokens import NoTokenError, TokenTakenError, all_tokens, revoke, usable_tokens
from volsched.runtime.clock import SECOND, system_clock

TOKEN = re.compile(r"volsched\.[0-9a-f]{16}\.[\w-]{43}")
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, store_file: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs volsched on a store and certificates of its own, and answers what it prints."""
    monkeypatch.setenv("VOLSCHED_DATABASE_URL", f"sqlite:///{store_file}")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name in ("TLS_CERT", "TLS_KEY", "CLIENT_CA"):
        monkeypatch.delenv(f"VOLSCHED_{name}_FILE", raising=False)

    def call(*args: str, code: int = 0, stdin: str | None = None) -> str:
        done = CliRunner().invoke(app, list(args), input=stdin)
        assert done.exit_code == code, done.output
        return done.stderr if code else done.stdout

    return call


@pytest.fixture
def certs(run: Run, tmp_path: Path) -> Path:
    run("certs", "init")
    run("certs", "server", "api.example.org")
    return tmp_path / "volsched" / "certs"


def test_a_token_is_shown_once_and_ends_when_it_is_revoked(run: Run, tmp_path: Path) -> None:
    token = run("token", "create", "ci", "--role", "operator", "-n", "shop", "--reason", "nightly").strip()
    assert TOKEN.fullmatch(token)
    run("token", "create", "dash", "--role", "viewer", "--out", str(tmp_path / "dash"), "--expires", "90d")
    assert TOKEN.fullmatch((tmp_path / "dash").read_text().strip())
    assert (tmp_path / "dash").stat().st_mode & 0o777 == 0o600
    (ci, dash) = json.loads(run("token", "list", "-o", "json"))["items"]
    assert (ci["roles"], ci["namespaces"], ci["state"], ci["expiresAt"]) == (["operator"], ["shop"], "valid", None)
    assert (dash["namespaces"], dash["expiresAt"] is None) == (None, False)
    assert "exists already" in run("token", "create", "ci", "--role", "viewer", code=7)
    assert run("token", "revoke", "ci", "--reason", "lost") == 'token "ci" is revoked\n'
    assert run("token", "revoke", "ci") == 'token "ci" was revoked before\n'
    assert "volsched token list" in run("token", "revoke", "nobody", code=3)
    assert re.search(r"ci +operator +shop +revoked", run("token", "list"))
    run("token", "create", "ci", "--role", "viewer")
    told = run("audit", "interventions")
    assert re.search(r"token/ci +token revoked +lost", told)
    assert re.search(r"token/ci +token issued: operator in shop +nightly", told)
    assert token.split(".")[2] not in told + run("token", "list", "-o", "json")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("No!", "--role", "viewer"), "cannot be a name"),
        (("n1", "--role", "node", "-n", "shop"), "whole cluster"),
        (("ci", "--role", "viewer", "-n", "A/B"), "cannot be a namespace"),
        (("ci", "--role", "viewer", "--expires", "soon"), "length of time"),
        (("ci", "--role", "viewer", "--out", "/nowhere/at/all"), "does not exist"),
        (("ci", "--role", "viewer", "--reason", " "), "reason is empty"),
    ],
)
def test_a_token_that_cannot_be_is_refused(run: Run, args: tuple[str, ...], told: str) -> None:
    assert told in run("token", "create", *args, code=2)
    assert run("token", "list") == ""


def test_tokens_on_both_engines(database: Database) -> None:
    now = system_clock()
    token = issue_token(database, "ci", Role.VIEWER, Role.AUDITOR, namespaces=["shop"])
    issue_token(database, "old", Role.VIEWER, expires_at=now - SECOND)
    issue_token(database, "old", Role.OPERATOR, expires_at=now + 90 * SECOND)
    with pytest.raises(TokenTakenError):
        issue_token(database, "ci", Role.VIEWER)
    with pytest.raises(NoTokenError):
        revoke(database, "nobody", actor="cli/token/test", now=now)
    with database.read() as connection:
        (ci, old) = all_tokens(connection)
        assert (ci.roles, ci.namespaces, ci.issued_by) == (("viewer", "auditor"), ("shop",), "cli/token/test")
        assert old.roles == ("operator",)
        assert usable_tokens(connection, now=now) == 2
        assert usable_tokens(connection, now=now + 91 * SECOND) == 1
    assert revoke(database, "ci", actor="cli/token/test", now=now, reason="lost")
    with database.read() as connection:
        assert usable_tokens(connection, now=now) == 1
        events = tail(connection, after=0, limit=10)
    assert [(it.stream, it.version, it.type) for it in events] == [
        ("token/ci", 1, "TokenIssued"),
        ("token/old", 1, "TokenIssued"),
        ("token/old", 2, "TokenIssued"),
        ("token/ci", 2, "TokenRevoked"),
    ]
    assert '"reason":"lost"' in events[3].data
    assert not any(part in it.data for it in events for part in (token, token.split(".")[2], ci.hash.hex()))
    assert verify(database).ok


def test_keys_are_for_their_owner_alone(run: Run, certs: Path) -> None:
    run("certs", "client", "ada", "--role", "viewer", "--role", "operator", "-n", "shop", "--expires", "12h")
    assert {it.name: oct(it.stat().st_mode & 0o777) for it in certs.glob("*.key")} == {
        "ca.key": "0o600", "server.key": "0o600", "ada.key": "0o600",
    }  # fmt: skip
    found = x509.load_pem_x509_certificate((certs / "ada.crt").read_bytes())
    names = sorted(str(it.value) for it in found.subject)
    assert names == ["ada", "volsched:operator:shop", "volsched:viewer:shop"]
    assert "holds an authority already" in run("certs", "init", code=7)
    assert "volsched certs init" in run("certs", "server", "--dir", str(certs / "none"), code=3)
    assert "choose another one" in run("certs", "client", "ca", "--role", "viewer", code=2)


def test_a_kubeconfig_that_could_not_work_is_refused(run: Run, certs: Path) -> None:
    remote = ("kubeconfig", "--server", "https://api.example.org:8700")
    local = yaml.safe_load(run("kubeconfig"))
    assert local["clusters"][0]["cluster"] == {"server": "http://127.0.0.1:8700"}
    assert "no user is named" in run(*remote, code=2)
    assert "go together" in run(*remote, "--user", "ada", code=2)
    assert "without TLS" in run("kubeconfig", "--user", "ada", "--role", "viewer", code=2)
    told = run(*remote, "--token-file", "-", stdin="hunter2", code=2)
    assert "holds no token" in told
    assert "hunter2" not in told
    token = run("token", "create", "ci", "--role", "viewer")
    made = yaml.safe_load(run(*remote, "--token-file", "-", stdin=token))
    assert made["users"][0]["user"] == {"token": token.strip()}
    assert (certs / "ca.crt").exists()


@pytest.mark.parametrize("verb", [("up",), ("serve", "api")])
def test_nobody_listens_where_nobody_could_come_in(run: Run, certs: Path, verb: tuple[str, ...]) -> None:
    listen = (*verb, "--host", "0.0.0.0", "--port", "0")
    tls = ("--tls-cert", str(certs / "server.crt"), "--tls-key", str(certs / "server.key"))
    assert "without TLS" in run(*listen, code=2)
    assert "volsched token create" in run(*listen, *tls, code=2)
    run("token", "create", "late", "--role", "viewer", "--expires", "0s")
    assert "volsched token create" in run(*listen, *tls, code=2)
    assert "both --tls-cert and --tls-key" in run(*listen, *tls[:2], code=2)
    assert "both --tls-cert and --tls-key" in run(*listen, "--client-ca", str(certs / "ca.crt"), code=2)
    assert "cannot be used with" in run(*listen, *tls[:3], str(certs / "ca.key"), code=2)


@contextmanager
def serving(tmp_path: Path, **settings: str) -> Iterator[str]:
    """The URL of `volsched up` beyond loopback, told all by its environment as a container is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "volsched", "up", "--host", "0.0.0.0", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(tmp_path), **settings},
    )
    try:
        yield said_url(process, "https://0.0.0.0:").replace("0.0.0.0", "127.0.0.1")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0


@needs_kubectl
def test_kubectl_comes_in_with_a_token_and_with_a_certificate(run: Run, certs: Path, tmp_path: Path) -> None:
    settings = {
        "VOLSCHED_TLS_CERT_FILE": str(certs / "server.crt"),
        "VOLSCHED_TLS_KEY_FILE": str(certs / "server.key"),
        "VOLSCHED_CLIENT_CA_FILE": str(certs / "ca.crt"),
    }
    with serving(tmp_path, **settings) as url:
        ada, ci, eve = (str(tmp_path / f"{it}.conf") for it in ("ada", "ci", "eve"))
        run("kubeconfig", "--server", url, "--user", "ada", "--role", "operator", "--out", ada)
        run("token", "create", "ci", "--role", "operator", "-n", "shop", "--out", str(tmp_path / "token"))
        run("kubeconfig", "--server", url, "--token-file", str(tmp_path / "token"), "-n", "shop", "--out", ci)
        run("kubeconfig", "--server", url, "--user", "eve", "--role", "viewer", "--out", eve)
        assert Path(ada).stat().st_mode & 0o777 == 0o600

        def kubectl(config: str, *args: str, stdin: str | None = None, fails: bool = False) -> str:
            done = subprocess.run(
                [str(KUBECTL), "--kubeconfig", config, *args],
                input=stdin, capture_output=True, text=True, timeout=HANG_SECONDS, check=False,
                env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            )  # fmt: skip
            assert (done.returncode != 0) == fails, done.stdout + done.stderr
            return done.stderr if fails else done.stdout

        assert kubectl(ada, "apply", "-f", "-", stdin=json.dumps(node("n1"))) == "node/n1 created\n"
        kubectl(ada, "create", "namespace", "shop")
        placed = json.dumps({**pod("db"), "metadata": {"name": "db", "namespace": "shop"}})
        assert kubectl(ci, "apply", "-f", "-", stdin=placed) == "pod/db created\n"
        kubectl(ci, "wait", "--for=condition=Ready", "pod/db", f"--timeout={HANG_SECONDS}s")
        assert "at the cluster scope" in kubectl(ci, "get", "pods", "-A", fails=True)
        assert 'User "eve" cannot delete resource "pods"' in kubectl(
            eve, "delete", "pod", "db", "-n", "shop", fails=True
        )
        assert kubectl(eve, "auth", "can-i", "list", "pods", "-A") == "yes\n"
        assert kubectl(ci, "auth", "can-i", "create", "pods") == "yes\n"
        assert kubectl(ci, "auth", "can-i", "get", "/metrics", fails=True) == ""
        listed = kubectl(ci, "auth", "can-i", "--list")
        assert re.search(
            r"^pods +\[\] +\[\] +\[get list watch create update patch delete deletecollection\]", listed, re.M
        )
        assert not re.search("^nodes ", listed, re.M)
        assert re.search(r"Username +ci\n", kubectl(ci, "auth", "whoami"))
        told = httpx.get(
            f"{url}/api/v1/pods", verify=ssl.create_default_context(cafile=certs / "ca.crt"), timeout=HANG_SECONDS
        )
        assert told.status_code == 401
        following = subprocess.Popen(
            [str(KUBECTL), "--kubeconfig", ci, "get", "pods", "-w", "-o", "name"],
            stdout=subprocess.PIPE, text=True, env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        )  # fmt: skip
        assert following.stdout is not None
        assert following.stdout.readline() == "pod/db\n"
        run("token", "revoke", "ci")
        assert following.communicate(timeout=HANG_SECONDS)[0] == ""
        assert "was revoked" in kubectl(ci, "get", "pods", fails=True)
    with_names = run("history", "pod", "shop/db")
    assert "token/ci" in with_names
