"""Servers that cannot be reached or believed: one line that says why and what to do."""

import socket
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.recorded_server import replaying
from volsched.api.access.tls import Authority, make_authority
from volsched.cluster.kubernetes.adapter import KubernetesCluster, attach
from volsched.cluster.kubernetes.kubeconfig import ClusterAccess
from volsched.cluster.port import UnansweredError

LASTS = timedelta(hours=1)
Serves = Callable[..., ssl.SSLContext]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "authority")


@pytest.fixture
def serves(tmp_path: Path, authority: Authority) -> Serves:
    """TLS of a server that has these names."""

    def context(*hosts: str, lasts: timedelta = LASTS, clients: bool = False) -> ssl.SSLContext:
        issued = authority.for_server(hosts, lasts=lasts)
        pair = tmp_path / "server.pem"
        pair.write_bytes(issued.certificate + issued.key)
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(pair)
        if clients:
            made.verify_mode = ssl.CERT_REQUIRED
            made.load_verify_locations(cadata=authority.pem.decode())
        return made

    return context


def identity(access: ClusterAccess) -> tuple[bool, str]:
    found = KubernetesCluster(attach(access), kinds=()).describe()
    return found.reachable, found.trouble or ""


def test_a_server_of_the_trusted_authority_is_believed(serves: Serves, authority: Authority) -> None:
    with replaying("56", "56e", tls=serves("127.0.0.1")) as recorded:
        assert identity(ClusterAccess(server=recorded.url, ca_data=authority.pem)) == (True, "")


def test_a_client_certificate_is_shown(serves: Serves, authority: Authority) -> None:
    mine = authority.for_client("me", [], lasts=LASTS)
    with replaying("56", "56e", tls=serves("127.0.0.1", clients=True)) as recorded:
        access = ClusterAccess(
            server=recorded.url, ca_data=authority.pem, certificate_data=mine.certificate, key_data=mine.key
        )
        assert identity(access) == (True, "")


def test_certificate_and_key_that_do_not_fit_are_reported(authority: Authority) -> None:
    one, other = (authority.for_client("me", [], lasts=LASTS) for _ in range(2))
    access = ClusterAccess(
        server="https://127.0.0.1:1", context="prod", certificate_data=one.certificate, key_data=other.key
    )
    assert identity(access) == (
        False,
        'client certificate and key of context "prod" do not match; renew them',
    )


def test_another_authority_is_not_believed(serves: Serves, tmp_path: Path) -> None:
    other = make_authority(tmp_path / "other")
    with replaying("56", tls=serves("127.0.0.1")) as recorded:
        reachable, trouble = identity(ClusterAccess(server=recorded.url, ca_data=other.pem, context="prod"))
    assert not reachable
    assert 'is not of the CA that context "prod" trusts' in trouble
    assert trouble.endswith("fetch it again")


def test_another_name_is_not_believed_but_under_the_name_that_is_given(
    serves: Serves, authority: Authority
) -> None:
    with replaying("56", "56e", tls=serves("api.example")) as recorded:
        reachable, trouble = identity(ClusterAccess(server=recorded.url, ca_data=authority.pem))
        assert not reachable
        assert "is for another name" in trouble
        assert "tls-server-name" in trouble
        access = ClusterAccess(server=recorded.url, ca_data=authority.pem, tls_server_name="api.example")
        assert identity(access) == (True, "")


def test_a_certificate_that_ran_out_says_to_compare_clocks(serves: Serves, authority: Authority) -> None:
    with replaying("56", tls=serves("127.0.0.1", lasts=-timedelta(minutes=1))) as recorded:
        reachable, trouble = identity(ClusterAccess(server=recorded.url, ca_data=authority.pem))
    assert not reachable
    assert "compare the clocks of both, then renew the certificate" in trouble


def test_a_ca_that_is_none_is_reported() -> None:
    reachable, trouble = identity(ClusterAccess(server="https://127.0.0.1:1", ca_data=b"nonsense", context="prod"))
    assert not reachable
    assert 'the CA of context "prod" (certificate-authority-data) cannot be used' in trouble


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    reachable, trouble = identity(ClusterAccess(server=f"http://127.0.0.1:{port}", context="prod"))
    assert not reachable
    assert f"http://127.0.0.1:{port} cannot be reached" in trouble
    assert 'is context "prod" the right one?' in trouble


def test_a_name_that_nobody_knows() -> None:
    reachable, trouble = identity(ClusterAccess(server="https://nowhere.invalid:6443", context="prod"))
    assert not reachable
    assert 'the name "nowhere.invalid" is not known here' in trouble


def test_plain_http_where_tls_was_meant() -> None:
    with replaying("56") as recorded:
        reachable, trouble = identity(ClusterAccess(server=recorded.url.replace("http:", "https:")))
    assert not reachable
    assert "is it an https server" in trouble


def test_a_page_of_a_proxy_is_no_answer() -> None:
    page = {"response": {"status": 200, "headers": {"content-type": "text/html"}, "body": "<html>log in</html>"}}
    with replaying(page) as recorded:
        cluster = KubernetesCluster(attach(ClusterAccess(server=recorded.url)), kinds=())
        with pytest.raises(UnansweredError, match="did not answer with JSON; is it an API server, or a proxy"):
            cluster.get("Node", "n1")
