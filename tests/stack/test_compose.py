"""docker-compose.yml: valid, hardened as it claims, and its services work together, run as local processes."""

import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stack.compose_smoke import compose_command
from tests.stack.composed import FILE, ROOT, Local, compose, seconds, started_by_default
from tests.stack.work import bound_pods, leg_moves
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.serving import collection
from volsched.lab.stack.handle import Stack
from volsched.lab.stack.local import services
from volsched.lab.stack.services import FILES_OF
from volsched.lab.stack.states import Condition
from volsched.log.database import open_database
from volsched.log.integrity.verify import verify
from workers.app import SOFT_SHUTDOWN_SECONDS

httpx = pytest.importorskip("httpx")
SERVICES = compose()["services"]
OURS = ("migrate", "api", "scheduler", "controller", "worker")


def test_it_is_a_compose_file_by_the_specification_of_compose() -> None:
    checked = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    ran = subprocess.run(checked, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.skipif(compose_command() is None, reason="there is no docker compose on this machine")
def test_compose_itself_takes_the_file_with_and_without_its_profiles() -> None:
    command = [*(compose_command() or ()), "--file", str(FILE)]
    by_default = {name for name, service in SERVICES.items() if "profiles" not in service}
    for profile, expected in (("", by_default), ("observability", set(SERVICES))):
        profiles = ["--profile", profile] if profile else []
        ran = subprocess.run([*command, *profiles, "config", "--services"], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert set(ran.stdout.split()) == expected


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_kept_small(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert not str(service["user"]).startswith(("0", "root"))
    image, _, tag = service["image"].partition(":")
    assert re.search(r"\d+\.\d+", tag), f"{image} is not pinned"
    assert all(it.startswith("127.0.0.1:") for it in service.get("ports", ()))
    assert not any(
        re.search(r"PASSWORD|SECRET", key) for key in service.get("environment", {}) if "FILE" not in key
    )


def test_every_service_that_stays_is_restarted_and_has_a_health_check() -> None:
    staying = {name: it for name, it in SERVICES.items() if name not in ("migrate", "secrets")}
    assert {it["restart"] for it in staying.values()} == {"unless-stopped"}
    assert all(it["healthcheck"]["test"][0] == "CMD" for it in staying.values())


def test_a_service_mounts_its_own_secrets_and_no_others() -> None:
    mounted = {
        name: [it["source"] for it in service.get("volumes", ()) if isinstance(it, dict)]
        for name, service in SERVICES.items()
        if name != "secrets"
    }
    assert mounted == {name: [f"secrets-{name}"] for name in FILES_OF}
    for name, files in FILES_OF.items():
        named = re.findall(r"/run/secrets/([\w.]+)", str({**SERVICES[name], "volumes": ()}))
        if name != "prometheus":
            assert set(named) == set(files), name


def test_the_image_has_a_directory_for_the_secrets_of_each_service() -> None:
    """A volume takes over the owner of the image's directory; without one it would be root's."""
    made = re.search(r"for service in ([a-z ]+); do", (ROOT / "Dockerfile").read_text())
    assert made
    assert set(made[1].split()) == set(FILES_OF)


def test_volumes_that_are_used_are_declared_and_no_others() -> None:
    mounts = [it for service in SERVICES.values() for it in service.get("volumes", ())]
    volumes = {it["source"] if isinstance(it, dict) else _source(it) for it in mounts}
    assert {it for it in volumes if not it.startswith(".")} == set(compose()["volumes"])


def _source(mount: str) -> str:
    """`${NAME:-default}` is the volume of its default."""
    default = re.match(r"\$\{\w+:-([^}]*)\}:", mount)
    return default[1] if default else mount.partition(":")[0]


def test_workers_have_time_for_their_soft_shutdown() -> None:
    assert seconds(SERVICES["worker"]["stop_grace_period"]) > SOFT_SHUTDOWN_SECONDS


def test_mounted_files_of_the_repository_exist() -> None:
    for service in SERVICES.values():
        for it in service.get("volumes", ()):
            if isinstance(it, str) and it.startswith("."):
                assert (ROOT / it.partition(":")[0]).exists()


def test_the_local_stack_runs_the_same_commands() -> None:
    """`volsched stack up` and compose are two lists of one thing; only addresses and paths may differ."""
    local = {
        it.name: it for it in services(Path("/x"), ports={"postgres": 1, "redis": 2}, api_port=8700, durable=True)
    }
    composed = started_by_default()
    assert set(local) == set(composed)
    for name in OURS:
        theirs = [
            it.replace("0.0.0.0", "127.0.0.1").replace("/run/secrets", "/x/secrets")
            for it in composed[name]["command"]
        ]
        assert list(local[name].command) == theirs
        assert set(local[name].after) == set(composed[name].get("depends_on", ()))
    for name in OURS[1:]:
        health = local[name].health
        assert health is not None
        assert ["CMD", *health.command] == composed[name]["healthcheck"]["test"]


def test_a_stack_that_is_not_durable_keeps_what_was_committed_when_its_server_is_killed() -> None:
    """What is not synced survives a process; what is not even written does not, and drills kill PostgreSQL."""
    postgres, *_ = services(Path("/x"), ports={"postgres": 1, "redis": 2}, api_port=8700, durable=False)
    assert "fsync=off" in postgres.command
    assert not any(it.startswith("synchronous_commit") for it in postgres.command)


@pytest.fixture
def composed(passable_path: Path) -> Iterator[tuple[Stack, Local]]:
    if shutil.which("sh") is None:
        pytest.skip("the health check of Redis needs a shell")
    directory = passable_path / "compose"
    directory.mkdir(mode=0o711)
    local = Local(directory)
    local.prepare()
    stack = Stack(directory)
    stack.launch()
    yield stack, local
    stack.down()


def manifests(pods: int) -> list[dict[str, Any]]:
    objects = [LOCAL, node("node-0"), node("node-1")]
    for number in range(pods):
        objects.append(volume(f"pv-{number}", "1Gi", f"node-{number % 2}"))
        objects += [claim(f"c-{number}", "1Gi"), pod(f"p-{number}", f"c-{number}")]
    return objects


def test_its_services_bind_pods_together_and_end_in_good_order(composed: tuple[Stack, Local]) -> None:
    """API with TLS and a client certificate → scheduler → Redis → worker → controller, each as the file says."""
    stack, local = composed
    stack.wait_ready()
    trusting = ssl.create_default_context(cafile=str(stack.directory / "services" / "api" / "ca.crt"))
    config = yaml.safe_load((stack.directory / "secrets" / "admin.kubeconfig").read_text())
    trusting.load_cert_chain(*_client_files(stack.directory, config["users"][0]["user"]))
    with httpx.Client(
        base_url=f"https://localhost:{local.ports['8700']}", verify=trusting, timeout=HANG_SECONDS
    ) as http:
        for manifest in manifests(20):
            answer = http.post(collection(manifest), json=manifest)
            assert answer.status_code == 201, answer.text
        database = open_database(stack.database_url)
        wait_until(lambda: bound_pods(database) == 20, progress=lambda: bound_pods(database), told=stack.complaint)
        assert set(leg_moves(database, "bound").values()) == {1}
        assert verify(database).ok
        database.close()
    stack.down()
    ended = stack.published()
    assert ended is not None
    assert {it.service: it.exit_code for it in ended.instances} == dict.fromkeys(started_by_default(), 0)
    assert {it.condition for it in ended.instances} == {Condition.STOPPED, Condition.DONE}
    assert all(it.restarts == 0 for it in ended.instances)


def _client_files(directory: Path, user: dict[str, str]) -> tuple[str, str]:
    import base64

    files = directory / "client.crt", directory / "client.key"
    for file, name in zip(files, ("client-certificate-data", "client-key-data"), strict=True):
        file.write_bytes(base64.b64decode(user[name]))
    return str(files[0]), str(files[1])
