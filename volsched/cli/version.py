"""`volsched version`: the versions of this program, and of the store or server that a command would ask."""

import platform
from importlib.metadata import version as installed_version
from typing import Any

from rich.markup import escape

from volsched.cli.console import Output, OutputOption, print_json, stdout
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, explained
from volsched.log.errors import NoStoreError

EXAMPLES = """**Examples**

`volsched version` names the versions of this program and of the store

`volsched version --server https://volsched.example:8700 -o json` names that of the server instead
"""


def version(db: Db = None, output: OutputOption = Output.table) -> None:
    """Show the version of this program, and of the store or the server that a command would ask."""
    client = {"version": installed_version("volsched"), "python": platform.python_version()}
    if output is Output.table:
        stdout.print(f"client: volsched {client['version']}, Python {client['python']}")
    name, details = _details(db)
    if output is Output.json:
        print_json({"client": client, name: details})
    elif details is None:
        stdout.print(f"{name}: nothing here yet; volsched apply and volsched up create one")
    else:
        stdout.print(
            escape(f"{name}: {', '.join(f'{word} {it}' for word, it in details.items())}"), soft_wrap=True
        )


def _details(db: str | None) -> tuple[str, dict[str, Any] | None]:
    """Whether a store or a server is asked, and its versions; None if there is no store yet."""
    server = chosen_server(db)
    if server is None:
        return "store", _store(db)
    answer = server.get("/version")
    kubernetes, _, version = str(answer.get("gitVersion", "")).partition("+volsched-")
    return "server", {"version": version or "unknown", "kubernetes": kubernetes, "url": server.url}


def _store(db: str | None) -> dict[str, Any] | None:
    from volsched.log.reads.tail import read_head
    from volsched.log.revisions import newest
    from volsched.log.store import open_store, revision_of
    from volsched.runtime.settings import database_url

    with explained():
        try:
            database = open_store(database_url(db))
        except NoStoreError:
            return None
        try:
            with database.read() as connection:
                revision, position = revision_of(connection), read_head(connection).position
        finally:
            database.close()
    return {"revision": revision, "newest": newest(), "position": position, "place": database.place}
