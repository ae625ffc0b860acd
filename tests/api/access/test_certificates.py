"""Client certificates, the server's own, and by which names it may be called."""

import ssl
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from kubernetes import client

from tests.api.access.secured import LONG, Secured, write_issued
from tests.support.clusters import node
from tests.support.patience import HANG_SECONDS
from tests.support.serving import collection
from volsched.api.access.callers import Caller, Grant, Role, UnauthorizedError, caller_of
from volsched.api.access.tls import Authority, TlsError, load_tls, make_authority
from volsched.log.reads.tail import tail

NOON = 1_800_000_000
CERTIFICATE = {"notAfter": "Jan 15 08:00:00 2027 GMT"}
"""Which is `NOON`."""


def named(common: str, *organizations: str) -> dict[str, object]:
    subject = [(("organizationName", it),) for it in organizations] + [(("commonName", common),)]
    return {**CERTIFICATE, "subject": tuple(subject)}


def test_a_certificate_names_a_user_and_roles() -> None:
    found = caller_of(named("ada", "volsched:viewer", "volsched:operator:shop", "acme"), now=0)
    grants = (Grant(Role.VIEWER), Grant(Role.OPERATOR, frozenset({"shop"})))
    assert found == Caller(name="ada", actor="cert/ada", grants=grants, until=NOON * 1_000_000)


@pytest.mark.parametrize(
    "organization",
    ["volsched:", "volsched:root", "volsched:admin:shop", "volsched:viewer:", "viewer", "VOLSCHED:admin"],
)
def test_what_is_not_quite_a_role_is_none(organization: str) -> None:
    assert caller_of(named("ada", organization), now=0).grants == ()


def test_a_certificate_ends_in_the_middle_of_a_connection() -> None:
    assert caller_of(named("ada"), now=NOON * 1_000_000 - 1).name == "ada"
    with pytest.raises(UnauthorizedError, match='certificate of "ada" has expired'):
        caller_of(named("ada"), now=NOON * 1_000_000)


@pytest.mark.parametrize("common", ["", "a\nb", "x" * 300])
def test_a_name_that_cannot_be_one_is_nobody(common: str) -> None:
    with pytest.raises(UnauthorizedError):
        caller_of(named(common, "volsched:admin"), now=0)
    with pytest.raises(UnauthorizedError):
        caller_of({**CERTIFICATE, "subject": ()}, now=0)


def test_a_certificate_is_who_writes(api: Secured) -> None:
    http = api.with_certificate("ada", Role.OPERATOR)
    assert http.post(collection(node("n1")), json=node("n1")).status_code == 201
    with api.database.read() as connection:
        (event,) = tail(connection, after=0, limit=10)
    assert event.actor == "cert/ada"


def test_a_certificate_of_another_authority_is_not_believed(shared: Secured, tmp_path: Path) -> None:
    other = make_authority(tmp_path / "other")
    forged = other.for_client("ada", ["volsched:admin"], lasts=LONG)
    context = shared.trusting()
    context.load_cert_chain(*write_issued(tmp_path, forged))
    with pytest.raises(httpx.TransportError):
        shared.client(context).get("/api/v1/pods")


def test_a_client_does_not_believe_a_server_of_another_authority(shared: Secured, tmp_path: Path) -> None:
    other = ssl.create_default_context(cadata=make_authority(tmp_path / "other").pem.decode())
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        shared.client(other).get("/readyz")


def test_a_certificate_that_ran_out_is_not_believed(shared: Secured) -> None:
    http = shared.with_certificate("ada", Role.ADMIN, lasts=timedelta(seconds=-1))
    with pytest.raises(httpx.TransportError):
        http.get("/api/v1/pods")


def test_a_servers_certificate_is_no_clients(shared: Secured, tmp_path: Path) -> None:
    context = shared.trusting()
    context.load_cert_chain(*write_issued(tmp_path, shared.authority.for_server(["localhost"], lasts=LONG)))
    with pytest.raises(httpx.TransportError):
        shared.client(context).get("/api/v1/pods")


def test_the_official_client_comes_in_with_a_certificate(api: Secured, tmp_path: Path) -> None:
    issued = api.authority.for_client("ada", ["volsched:operator"], lasts=LONG)
    certificate, key = write_issued(tmp_path, issued)
    (tmp_path / "authority.pem").write_bytes(api.authority.pem)
    configuration = client.Configuration(host=api.url)
    configuration.ssl_ca_cert = str(tmp_path / "authority.pem")
    configuration.cert_file, configuration.key_file = str(certificate), str(key)
    with client.ApiClient(configuration) as connection:
        core = client.CoreV1Api(connection)
        assert core.create_node(node("n1")).metadata.name == "n1"
        assert [it.metadata.name for it in core.list_node().items] == ["n1"]


def test_only_the_names_in_the_certificate_are_answered(shared: Secured) -> None:
    http = shared.with_certificate("ada", Role.VIEWER)
    port = shared.url.rpartition(":")[2]
    for host in (f"localhost:{port}", "LOCALHOST", "127.0.0.1"):
        assert http.get("/api/v1/pods", headers={"host": host}).status_code == 200
    for host in ("evil.example", f"localhost.evil.example:{port}", "127.0.0.2", ""):
        assert http.get("/api/v1/pods", headers={"host": host}).status_code == 403
        # Probes know an address and no name.
        assert http.get("/livez", headers={"host": host}).status_code == 200
    assert http.get("/api/v1/pods", headers={"origin": "https://evil.example"}).status_code == 403
    assert http.get("/api/v1/pods", headers={"origin": f"https://localhost:{port}"}).status_code == 200


def test_plain_http_is_not_spoken(shared: Secured) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(shared.url.replace("https", "http"), timeout=HANG_SECONDS)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_of_tls_are_not_spoken(shared: Secured) -> None:
    old = shared.trusting()
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(httpx.ConnectError):
        shared.client(old).get("/readyz")


def test_what_is_wrong_with_the_servers_files_is_reported(authority: Authority, tmp_path: Path) -> None:
    certificate, key = write_issued(tmp_path, authority.for_server(["localhost"], lasts=LONG), "good")
    _, other = write_issued(tmp_path, authority.for_server(["localhost"], lasts=LONG), "other")
    ran_out, its_key = write_issued(tmp_path, authority.for_server(["x"], lasts=timedelta(seconds=-1)), "old")
    nameless, own = write_issued(tmp_path, authority.for_client("ada", [], lasts=LONG), "client")
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.touch()
    assert load_tls(certificate, key).hosts.knows("localhost")
    for given, told in (
        ((certificate, other), "other.key: cannot be used with"),
        ((missing, key), "missing: cannot be read as a certificate"),
        ((certificate, missing), "missing: cannot be used with"),
        ((ran_out, its_key), "volsched certs server HOST"),
        ((nameless, own), "names no host"),
        ((certificate, key, missing), "missing: cannot be read as certificates"),
        ((certificate, key, empty), "give a file in PEM with --client-ca"),
    ):
        with pytest.raises(TlsError, match=told):
            load_tls(*given)
