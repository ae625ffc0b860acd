"""Makes `docs/settings.md` from the declarations of `volsched.runtime.settings`: a default is written once.

python -m tools.settings > docs/settings.md
"""

import sys

from pydantic.fields import FieldInfo

from volsched.runtime.settings import Settings

COMPUTED = {
    "database_url": "a SQLite file in `$XDG_DATA_HOME/volsched`, else `~/.local/share/volsched`",
    "instance": "the machine's name",
}
"""Defaults that depend on the machine."""
HEAD = """# Settings

Environment variables of every process. `VOLSCHED_…_FILE` names a file that holds a setting instead, such as
`VOLSCHED_DATABASE_URL_FILE=/run/secrets/database_url`. The scheduler's configuration file is described in
[scheduling.md](scheduling.md). This page is made by `python -m tools.settings`.

| setting | default | meaning |
|---|---|---|
"""


def shown_default(name: str, field: FieldInfo) -> str:
    if name in COMPUTED:
        return COMPUTED[name]
    default = field.default
    if default is None:
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)


def page() -> str:
    rows = (
        f"| `VOLSCHED_{name.upper()}` | {shown_default(name, field)} | {field.description} |\n"
        for name, field in Settings.model_fields.items()
    )
    return HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
