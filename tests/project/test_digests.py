"""`make digests` against registries of our own on loopback: good ones, strict ones, wrong ones, and none."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tools.digests import FILES, images
from volsched.lab.stack.local import free_port

ROOT = Path(__file__).parents[2]
IMAGES = images((ROOT / name).read_text() for name in FILES)
TOKEN = "for-strangers"


@dataclass
class Registry:
    """Manifests by path; what it says of them, and whether it asks who is there."""

    manifests: dict[str, bytes]
    strict: bool = False
    claims: dict[str, str] = field(default_factory=dict)
    url: str = ""

    def digest(self, name: str, tag: str) -> str:
        path = name if "/" in name else f"library/{name}"
        return f"sha256:{hashlib.sha256(self.manifests[f'/v2/{path}/manifests/{tag}']).hexdigest()}"


@contextmanager
def served(registry: Registry) -> Iterator[Registry]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            if asked.path == "/token":
                assert parse_qs(asked.query)["scope"] == ["repository:x:pull"]
                self.answer(200, json.dumps({"token": TOKEN}).encode(), {})
            elif registry.strict and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                wanted = f'Bearer realm="{registry.url}/token",service="here",scope="repository:x:pull"'
                self.answer(401, b"", {"WWW-Authenticate": wanted})
            elif (content := registry.manifests.get(asked.path)) is None:
                self.answer(404, b"", {})
            else:
                assert "application/vnd.oci.image.index.v1+json" in self.headers["Accept"]
                claimed = registry.claims.get(asked.path)
                self.answer(200, content, {"Docker-Content-Digest": claimed} if claimed else {})

        def answer(self, code: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(code)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def registry() -> Iterator[Registry]:
    """With every image of ours."""
    manifests = {}
    for name, tag in IMAGES:
        path = name if "/" in name else f"library/{name}"
        manifests[f"/v2/{path}/manifests/{tag}"] = f'{{"image": "{name}:{tag}"}}'.encode()
    with served(Registry(manifests)) as running:
        yield running


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def digests(tree: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tools.digests", "--root", str(tree), *words]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "no_proxy": "*", **environment}
    )


def without_digests(text: str) -> str:
    return re.sub("@sha256:[0-9a-f]{64}", "", text)


def refused(tree: Path, ran: "subprocess.CompletedProcess[str]") -> str:
    """What it said; nothing was changed."""
    assert (ran.returncode, ran.stdout) == (1, "")
    assert all((tree / name).read_text() == (ROOT / name).read_text() for name in FILES)
    assert "nothing was changed" in ran.stderr
    return ran.stderr


def test_it_looks_for_every_image_but_our_own() -> None:
    names = {name for name, _ in IMAGES}
    assert names == {"python", "postgres", "redis", "prom/prometheus", "grafana/grafana"}


@pytest.mark.parametrize("strict", [False, True], ids=["open", "asks for a token"])
def test_digests_are_written_behind_their_tags_and_nothing_else_is_changed(
    tree: Path, registry: Registry, strict: bool
) -> None:
    registry.strict = strict
    ran = digests(tree, "--registry", registry.url)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [f"{name}:{tag}@{registry.digest(name, tag)}" for name, tag in IMAGES]
    services = yaml.safe_load((tree / "docker-compose.yml").read_text())["services"]
    name, tag = next(it for it in IMAGES if it[0] == "redis")
    assert services["redis"]["image"] == f"{name}:{tag}@{registry.digest(name, tag)}"
    assert services["api"]["image"].startswith("volsched:")
    for file in FILES:
        text = (tree / file).read_text()
        assert text.count("@sha256:") == {"Dockerfile": 2, "docker-compose.yml": 4}[file]
        assert without_digests(text) == without_digests((ROOT / file).read_text())


def test_a_tag_that_was_given_to_another_image_gets_the_digest_of_that(tree: Path, registry: Registry) -> None:
    digests(tree, "--registry", registry.url)
    name, tag = next(it for it in IMAGES if it[0] == "redis")
    before = registry.digest(name, tag)
    registry.manifests[f"/v2/library/{name}/manifests/{tag}"] = b"{}"
    digests(tree, "--registry", registry.url)
    text = (tree / "docker-compose.yml").read_text()
    assert before not in text
    assert f"redis:{tag}@{registry.digest(name, tag)}\n" in text


def test_where_one_image_is_not_known_nothing_is_changed(tree: Path, registry: Registry) -> None:
    missing = next(it for it in registry.manifests if "grafana" in it)
    del registry.manifests[missing]
    assert f"{missing} answered 404" in refused(tree, digests(tree, "--registry", registry.url))


def test_a_registry_that_sends_something_else_than_it_says_is_not_believed(tree: Path, registry: Registry) -> None:
    for path in registry.manifests:
        registry.claims[path] = "sha256:" + "0" * 64
    assert "said sha256:000" in refused(tree, digests(tree, "--registry", registry.url))


def test_where_no_registry_answers_it_is_said_and_nothing_is_changed(tree: Path, tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    assert f"no image registry answers at {nobody}" in refused(tree, digests(tree, "--registry", nobody))
    assert "there is no docker" in refused(tree, digests(tree, PATH=str(tmp_path)))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('[ "$2" = version ] || { echo "no such host" >&2; exit 1; }', "registry answers docker (no such host)"),
        ("echo ok", "no image registry answers docker (ok)"),
        ("exit 1", "no image registry could be asked: this docker has no buildx"),
    ],
    ids=["fails", "says no digest", "cannot ask"],
)
def test_without_a_registry_named_docker_is_asked_and_its_failure_told(
    tree: Path, tmp_path: Path, script: str, words: str
) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\n{script}\n")
    docker.chmod(0o755)
    assert words in refused(tree, digests(tree, PATH=str(tmp_path)))


def test_what_docker_answers_is_written(tree: Path, tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\n[ "$1 $2 $3" = "buildx imagetools inspect" ] && echo sha256:{"a" * 64}\n')
    docker.chmod(0o755)
    ran = digests(tree, PATH=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert (tree / "docker-compose.yml").read_text().count(f"@sha256:{'a' * 64}") == 4
