"""The console's sources: types as our API has them, components that do what they say, a lock without addresses."""

import json
import os
import subprocess
from pathlib import Path

from tools.console_types import console_schemas
from tools.npm import WEB, node, npm_command

ENVIRONMENT = {**os.environ, "PATH": os.pathsep.join([str(node().parent), os.environ.get("PATH", "")])}


def run(*words: str) -> str:
    ran = subprocess.run([*npm_command(), *words], cwd=WEB, capture_output=True, text=True, env=ENVIRONMENT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_types_of_the_pages_are_those_of_the_api(tmp_path: Path) -> None:
    document, written = tmp_path / "openapi.json", tmp_path / "types.ts"
    document.write_text(json.dumps(console_schemas()))
    run("exec", "--", "openapi-typescript", str(document), "--output", str(written))
    assert written.read_text() == (WEB / "src" / "api-types.ts").read_text(), "run: make types"


def test_the_components_do_what_their_own_tests_say() -> None:
    run("run", "test", "--silent")


def test_the_lock_has_a_hash_for_every_package_and_no_address() -> None:
    text = (WEB / "package-lock.json").read_text()
    assert "://" not in text
    packages = json.loads(text)["packages"]
    assert [name for name, it in packages.items() if name and "integrity" not in it] == []
    assert "registry=" not in (WEB / ".npmrc").read_text()


def test_the_console_is_compiled_with_the_packages_that_the_image_installs(tmp_path: Path) -> None:
    """The Dockerfile runs `npm ci --omit=dev`; what only tests need is not there when it builds."""
    packages = json.loads((WEB / "package-lock.json").read_text())["packages"]
    for place, package in packages.items():
        installed = WEB / place
        is_outermost = place.count("node_modules/") == 1
        if is_outermost and not package.get("dev") and installed.is_dir():
            (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place).symlink_to(installed)
    for name in ("package.json", "tsconfig.json", "src"):
        (tmp_path / name).symlink_to(WEB / name)
    compiler = tmp_path / "node_modules" / "typescript" / "bin" / "tsc"
    ran = subprocess.run(
        [node(), "--preserve-symlinks-main", compiler, "--noEmit", "--preserveSymlinks"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
