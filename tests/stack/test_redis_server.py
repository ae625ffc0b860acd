"""Which Redis is taken: one that is installed, the distribution's, or for a look an imitation, always by its name.

The distribution is an archive of this test's own, which the real apt reads: no network, and versions as we like.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.support.patience import HANG_SECONDS, wait_until
from volsched.lab.stack.local import free_port, prepare
from volsched.lab.stack.programs import COMPLETE, LOOK_AGAIN_SECONDS, WheelMissingError, find_redis

with_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="only where there is apt")
TOOLS = ("apt-get", "apt-cache", "dpkg-deb", "dpkg-query", "sh", "tar", "gzip", "xz", "zstd")


@pytest.fixture(autouse=True)
def _empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on the PATH, nothing in the cache."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def command(directory: Path, name: str, text: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{text}\n")
    (directory / name).chmod(0o755)


def said(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()


class Archive:
    """A distribution, as apt sees it."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self._entries: list[str] = []
        directory.mkdir()
        (directory / "sources.list").write_text(f"deb [trusted=yes] file:{directory} ./\n")
        settings = {
            "Dir::Etc::sourcelist": directory / "sources.list",
            "Dir::Etc::sourceparts": "-",
            # Nothing that this machine has installed counts.
            "Dir::State::status": directory / "status",
        }
        (directory / "status").touch()
        (directory / "apt.conf").write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
        monkeypatch.setenv("APT_CONFIG", str(directory / "apt.conf"))
        for tool in TOOLS:
            if found := shutil.which(tool, path=os.defpath):
                (Path(os.environ["PATH"]) / tool).symlink_to(found) if tool != "sh" else None

    def offer(self, package: str, version: str, programs: dict[str, str], depends: str = "") -> None:
        tree = self.directory / "tree" / f"{package}-{version}"
        for name, text in programs.items():
            command(tree / "usr" / "bin", name, text)
        fields = [f"Package: {package}", f"Version: {version}", "Architecture: all", "Maintainer: a test"]
        fields += [f"Depends: {depends}"] if depends else []
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN" / "control").write_text("\n".join([*fields, "Description: of a test", ""]))
        file = self.directory / f"{package}_{version}.deb"
        subprocess.run(["dpkg-deb", "--build", tree, file], check=True, capture_output=True)
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        self._entries.append(
            "\n".join([*fields, f"Filename: ./{file.name}", f"Size: {len(content)}", f"SHA256: {digest}", ""])
        )
        (self.directory / "Packages").write_text("\n".join(self._entries))


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    made = Archive(tmp_path / "archive", monkeypatch)
    tools = {"redis-cli": 'echo "redis-cli of the package"'}
    made.offer("redis-tools", "5:7.0.15-1", tools, depends="adduser")
    made.offer(
        "redis-server", "5:7.0.15-1", {"redis-server": 'echo "Redis server v=7.0.15 sha=0"'}, depends="redis-tools"
    )
    return made


@pytest.mark.parametrize(("family", "name"), [("redis", "Redis"), ("valkey", "Valkey")])
def test_one_that_is_installed_is_taken_and_answers_to_the_names_of_redis(
    tmp_path: Path, family: str, name: str
) -> None:
    command(tmp_path / "path", f"{family}-server", f'echo "{name} server v=8.1.4 sha=0"')
    command(tmp_path / "path", f"{family}-cli", 'echo "PONG"')
    server = find_redis()
    assert server.description == f"{name} 8.1.4, {tmp_path}/path/{family}-server"
    assert not server.imitation
    assert said(server.directory / "redis-server") == f"{name} server v=8.1.4 sha=0"
    assert said(server.directory / "redis-cli") == "PONG"


@with_apt
def test_else_the_package_of_the_distribution_is_unpacked_with_what_belongs_to_it(archive: Archive) -> None:
    server = find_redis()
    assert server.description == "Redis 7.0.15, package redis-server 5:7.0.15-1"
    assert not server.imitation
    assert said(server.directory / "redis-cli") == "redis-cli of the package"
    assert archive.directory not in server.directory.parents


@with_apt
def test_a_distribution_may_have_valkey_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only = Archive(tmp_path / "only", monkeypatch)
    programs = {"valkey-server": 'echo "Valkey server v=8.1.4"', "valkey-cli": 'echo "PONG"'}
    only.offer("valkey-server", "8.1.4-1", programs)
    server = find_redis()
    assert server.description == "Valkey 8.1.4, package valkey-server 8.1.4-1"
    assert said(server.directory / "redis-cli") == "PONG"


@with_apt
def test_what_was_unpacked_is_used_again_and_looked_for_anew_after_a_week(archive: Archive) -> None:
    first = find_redis()
    program = {"redis-server": 'echo "Redis server v=7.0.15 sha=0"'}
    archive.offer("redis-server", "5:7.0.15-2", program, depends="redis-tools")
    assert find_redis() == first
    mark = first.directory.parent / COMPLETE
    os.utime(mark, (0, mark.stat().st_mtime - LOOK_AGAIN_SECONDS - 1))
    second = find_redis()
    assert second.description == "Redis 7.0.15, package redis-server 5:7.0.15-2"
    assert first.directory.exists(), "a stack may still run on it"

    # The archive is gone: what is there stays in use.
    mark = second.directory.parent / COMPLETE
    os.utime(mark, (0, mark.stat().st_mtime - LOOK_AGAIN_SECONDS - 1))
    shutil.rmtree(archive.directory)
    assert find_redis() == second


@with_apt
def test_a_package_that_is_not_what_the_index_says_is_refused(archive: Archive) -> None:
    file = archive.directory / "redis-server_5:7.0.15-1.deb"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(WheelMissingError, match=r"no package could be unpacked \(apt-get download: "):
        find_redis()


@with_apt
def test_a_program_that_does_not_start_is_refused(archive: Archive) -> None:
    archive.offer("redis-server", "5:7.0.16-1", {"redis-server": "exit 127"}, depends="redis-tools")
    with pytest.raises(WheelMissingError, match=r"redis-server --version: exit 127"):
        find_redis()


def test_without_any_it_is_said_what_to_install_and_an_imitation_is_for_whoever_allows_it() -> None:
    with pytest.raises(WheelMissingError, match=r"no apt-get and dpkg here\); install one of them .*redis-server"):
        find_redis()
    server = find_redis(imitation=True)
    assert server.imitation
    assert server.description.startswith("fakeredis 2.")
    assert "proves nothing" in server.description


def test_a_stack_that_is_to_prove_something_refuses_the_imitation(tmp_path: Path) -> None:
    with pytest.raises(WheelMissingError, match="install one of them"):
        prepare(tmp_path / "stack")
    assert not (tmp_path / "stack").exists()
    command = [str(Path(sys.executable).parent / "volsched"), "drill", "run", "kill-worker", "--engine", "stack"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    assert "install one of them" in ran.stderr


def test_the_imitation_does_what_a_stack_asks_of_it_and_ends_when_asked(tmp_path: Path) -> None:
    port, server = free_port(), find_redis(imitation=True)
    configuration = tmp_path / "redis.conf"
    configuration.write_text(f'bind 127.0.0.1\nport {port}\nrequirepass secret\nsave ""\n')

    def pings() -> bool:
        words = [server.directory / "redis-cli", "-h", "127.0.0.1", "-p", str(port), "ping"]
        ran = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "REDISCLI_AUTH": "secret"})
        return ran.returncode == 0 and ran.stdout == "PONG\n"

    process = subprocess.Popen([server.directory / "redis-server", str(configuration)])
    try:
        wait_until(pings)
        client = redis.Redis(port=port, password="secret")
        client.lpush("queue", "a")
        assert client.eval("return redis.call('llen', KEYS[1])", 1, "queue") == 1
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=HANG_SECONDS) == 0
