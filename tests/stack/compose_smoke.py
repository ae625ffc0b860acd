"""`make compose-smoke`: docker-compose.yml with a real Docker engine: built, started, a pod bound, ended.

For machines that have an engine; docs/stack.md says whether it ever ran. It has a project of its own, so that a
stack of the same machine keeps its volumes; the port must be free.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PROJECT = "volsched-smoke"
EXAMPLE = ROOT / "docs" / "examples" / "local-database.yaml"
BIND_SECONDS = 120


def compose_command() -> list[str] | None:
    """How Compose is called here: as a plugin of docker, or by its own name; None without it."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and subprocess.run([*command, "version"], capture_output=True).returncode == 0:
            return command
    return None


def main() -> int:
    command = compose_command()
    if command is None:
        print("error: there is no docker compose here; volsched stack up is the same without it", file=sys.stderr)
        return 1
    if subprocess.run(["docker", "info"], capture_output=True).returncode != 0:
        print("error: no Docker engine answers; start it, or use: volsched stack up", file=sys.stderr)
        return 1
    compose = [*command, "--file", str(ROOT / "docker-compose.yml"), "--project-name", PROJECT]
    try:
        _run([*compose, "up", "--build", "--detach", "--wait"])
        _bind_a_pod(compose)
    except (subprocess.CalledProcessError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        subprocess.run([*compose, "ps", "--all"])
        subprocess.run([*compose, "logs", "--tail", "50"])
        return 1
    finally:
        subprocess.run([*compose, "down", "--volumes", "--timeout", "30"])
    print("built, started, bound and ended")
    return 0


def _bind_a_pod(compose: list[str]) -> None:
    from kubernetes import client, config, utils, watch

    shown = _run(
        [*compose, "run", "--rm", "--no-deps", "secrets", "cat", "/secrets/admin.kubeconfig"], shown=False
    )
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "admin.kubeconfig")
        file.write_text(shown)
        api = config.new_client_from_config(str(file))
    core = client.CoreV1Api(api)
    core.create_namespace({"metadata": {"name": "shop"}})
    for manifest in yaml.safe_load_all(EXAMPLE.read_text()):
        utils.create_from_dict(api, manifest)
    seen = watch.Watch().stream(
        core.list_namespaced_pod, "shop", field_selector="metadata.name=db-0", timeout_seconds=BIND_SECONDS
    )
    node = next((it["object"].spec.node_name for it in seen if it["object"].spec.node_name), None)
    if node is None:
        raise TimeoutError(f"pod shop/db-0 has no node after {BIND_SECONDS} s")
    print(f"pod shop/db-0 is on {node}")


def _run(command: list[str], *, shown: bool = True) -> str:
    print("+", *command, flush=True)
    ran = subprocess.run(command, stdout=None if shown else subprocess.PIPE, text=True, check=True)
    return ran.stdout or ""


if __name__ == "__main__":
    sys.exit(main())
