"""Where a cluster is and who we are there: files merged as kubectl does it, a remedy for whatever is missing."""

import base64
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from volsched.cluster.kubernetes.access_files import find_access
from volsched.cluster.kubernetes.credentials import READ_AGAIN_SECONDS, CredentialSource
from volsched.cluster.kubernetes.kubeconfig import (
    ClusterAccess,
    ExecPlugin,
    KubeconfigError,
    KubeconfigFile,
    choose,
    in_cluster,
    merge,
)
from volsched.cluster.kubernetes.transport import proxy_of

V1 = "client.authentication.k8s.io/v1"


def config(
    name: str = "a", *, cluster: Any = None, user: Any = None, current: str | None = None
) -> dict[str, Any]:
    return {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443/"} | (cluster or {})}],
        "users": [{"name": name, "user": {"token": name} if user is None else user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "shop"}}],
        "current-context": name if current is None else current,
    }


def access(content: Any, context: str | None = None, path: str = "/etc/kube/config") -> ClusterAccess:
    return choose(merge([KubeconfigFile(path, content)]), context)


def test_the_first_file_that_has_a_name_wins_and_the_first_current_context() -> None:
    first, second = config("a", current=""), config("a", user={"token": "late"}, current="b")
    third = config("b")
    merged = merge([KubeconfigFile("/1", first), KubeconfigFile("/2", second), KubeconfigFile("/3", third)])
    assert choose(merged).server == "https://b:6443"
    chosen = choose(merged, "a")
    assert (chosen.token, chosen.namespace, chosen.context) == ("a", "shop", "a")


def test_paths_are_relative_to_their_file_and_data_is_decoded() -> None:
    data = base64.b64encode(b"PEM").decode()
    user = {"client-certificate": "crt", "client-key-data": data, "tokenFile": "/abs/token"}
    chosen = access(config(cluster={"certificate-authority": "ca.crt", "tls-server-name": "api"}, user=user))
    assert chosen.ca_file == "/etc/kube/ca.crt"
    assert (chosen.certificate_file, chosen.key_data) == ("/etc/kube/crt", b"PEM")
    assert (chosen.token_file, chosen.tls_server_name) == ("/abs/token", "api")


@pytest.mark.parametrize(
    ("content", "context", "words"),
    [
        ("text", None, "not a kubeconfig"),
        (config(current=""), None, "--context: a"),
        (config(), "other", '"other"; choose one with --context: a'),
        ({**config(), "clusters": []}, None, 'names cluster "a"'),
        (config(cluster={"server": ""}), None, "has no server"),
        (config(cluster={"certificate-authority-data": "???"}), None, "not base64"),
        (config(user={"auth-provider": {"name": "gcp"}}), None, "use an exec plugin"),
        (config(user={"username": "a", "password": "b"}), None, "use a token or a client certificate"),
        (config(user={"exec": {"apiVersion": V1}}), None, "has no command"),
        (config(user={"exec": {"apiVersion": "x/v1alpha1", "command": "x"}}), None, "upgrade it to"),
        (config(user={"exec": {"apiVersion": V1, "command": "x", "interactiveMode": "Always"}}), None, "terminal"),
        ({"clusters": [{"cluster": {}}]}, None, "an entry of clusters has no name"),
    ],
)
def test_what_is_missing_is_named_with_its_remedy(content: Any, context: str | None, words: str) -> None:
    with pytest.raises(KubeconfigError) as caught:
        access(content, context)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_are_looked_for_where_kubectl_looks(tmp_path: Path) -> None:
    for name in ("named", "listed", ".kube/config"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump(config(name.replace(".kube/config", "usual"))))
    listed = {"KUBECONFIG": f"{tmp_path / 'missing'}:{tmp_path / 'listed'}"}
    pod = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert find_access(tmp_path / "named", environment=listed).context == "named"
    assert find_access(environment=listed, home=tmp_path).context == "listed"
    assert find_access(environment=pod, home=tmp_path).context == "usual"
    inside = find_access(environment=pod, home=tmp_path / "nobody", service_account="/sa")
    assert (inside.server, inside.token_file, inside.ca_file) == (
        "https://[fd00::1]:443",
        "/sa/token",
        "/sa/ca.crt",
    )
    assert in_cluster({}, directory="/sa") is None


@pytest.mark.parametrize(
    ("environment", "words"),
    [({}, "and this is not a pod"), ({"KUBECONFIG": "/nowhere/at/all"}, "/nowhere/at/all, which does not exist")],
)
def test_without_a_kubeconfig_the_remedy_is_reported(
    tmp_path: Path, environment: dict[str, str], words: str
) -> None:
    with pytest.raises(KubeconfigError, match="--kubeconfig") as caught:
        find_access(environment=environment, home=tmp_path)
    assert words in str(caught.value)
    with pytest.raises(KubeconfigError, match="cannot be read"):
        find_access(tmp_path / "missing")
    (tmp_path / "broken").write_text("a: [")
    with pytest.raises(KubeconfigError, match="not YAML"):
        find_access(tmp_path / "broken")


def test_a_token_file_is_read_again_as_it_is_renewed(tmp_path: Path) -> None:
    file, now = tmp_path / "token", [1000.0]
    file.write_text("first\n")
    source = CredentialSource(ClusterAccess(server="https://a", token_file=str(file)), lambda: now[0])
    assert source.current().token == "first"
    file.write_text("second")
    assert source.current().token == "first"
    now[0] += READ_AGAIN_SECONDS
    assert source.current().token == "second"
    file.write_text("third")
    assert source.renew()
    assert source.current().token == "third"
    file.unlink()
    source.renew()
    with pytest.raises(KubeconfigError, match=r"the token in .* cannot be read"):
        source.current()


def plugin(tmp_path: Path, answer: object, *, code: int = 0) -> ExecPlugin:
    """A plugin that counts its runs in a file beside it."""
    file = tmp_path / "plugin"
    text = answer if isinstance(answer, str) else json.dumps(answer)
    file.write_text(
        f"#!{sys.executable}\\nimport os, sys\\n".replace("\\n", "\n")
        + f"open({str(tmp_path / 'runs')!r}, 'a').write(os.environ['KUBERNETES_EXEC_INFO'] + '\\n')\n"
        + f"sys.stderr.write('log in first') if {code} else print({text!r})\nsys.exit({code})\n"
    )
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return ExecPlugin(command=str(file), arguments=("get-token",), provide_cluster=True)


def runs(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "runs").read_text().splitlines()]


def test_a_plugin_runs_once_until_its_credential_runs_out_or_is_refused(tmp_path: Path) -> None:
    now = [1_790_000_000.0]
    status = {"token": "t", "expirationTimestamp": "2026-09-21T14:13:20Z"}
    access = ClusterAccess(server="https://a", plugin=plugin(tmp_path, {"status": status}))
    source = CredentialSource(access, lambda: now[0])
    credential = source.current()
    assert (credential.token, credential.expires_at) == ("t", 1_790_000_000.0)
    assert len(runs(tmp_path)) == 1
    now[0] -= 3600
    source.current()
    source.current()
    assert len(runs(tmp_path)) == 1
    now[0] += 3600
    source.current()
    assert len(runs(tmp_path)) == 2
    now[0] -= 3600
    assert source.renew()
    source.current()
    assert len(runs(tmp_path)) == 3
    assert runs(tmp_path)[0]["spec"] == {"interactive": False, "cluster": {"server": "https://a"}}


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ("no json", 0, "returned no ExecCredential"),
        ({"status": {}}, 0, "neither a token nor a certificate"),
        ("", 3, "failed with 3: log in first"),
    ],
)
def test_a_plugin_that_fails_is_reported_with_its_own_words(
    tmp_path: Path, answer: object, code: int, words: str
) -> None:
    access = ClusterAccess(server="https://a", plugin=plugin(tmp_path, answer, code=code))
    with pytest.raises(KubeconfigError, match=words):
        CredentialSource(access, lambda: 0.0).current()


def test_a_plugin_that_is_not_installed_says_how_to(tmp_path: Path) -> None:
    missing = ExecPlugin(command=str(tmp_path / "missing"), install_hint="brew install it")
    with pytest.raises(KubeconfigError, match=r"cannot be run: .*; brew install it"):
        CredentialSource(ClusterAccess(server="https://a", plugin=missing), lambda: 0.0).current()


def test_the_proxy_is_the_kubeconfigs_else_the_environments() -> None:
    environment = {"HTTPS_PROXY": "http://proxy:1", "no_proxy": "inside.example"}
    assert proxy_of(ClusterAccess(server="https://a:6443"), environment) == "http://proxy:1"
    assert proxy_of(ClusterAccess(server="https://a.inside.example"), environment) is None
    assert proxy_of(ClusterAccess(server="http://a"), environment) is None
    assert proxy_of(ClusterAccess(server="https://a", proxy="socks5://p"), environment) == "socks5://p"
