"""A store without room, or with another file in its place: told as such, not ready, and never with its path."""

import asyncio
import shutil
from pathlib import Path

from sqlalchemy import event

from tests.support.clusters import node
from tests.support.serving import served
from volsched.api.health import ready
from volsched.api.limits import DEFAULT_LIMITS
from volsched.api.services import Services
from volsched.api.watch_cache import Fan
from volsched.log.database import Database
from volsched.runtime.clock import SECOND
from volsched.runtime.writer import Writer

NODES = "/api/v1/nodes"


def large(name: str) -> dict[str, object]:
    made = node(name)
    made["metadata"]["annotations"] = {"example.com/x": "x" * 200_000}
    return made


def test_a_full_disk_is_507_and_not_ready_until_there_is_room(sqlite: Database) -> None:
    limit = {"pages": 1_000_000}

    @event.listens_for(sqlite.engine, "checkout")
    def _limited(raw: object, *_: object) -> None:
        raw.execute(f"PRAGMA max_page_count = {limit['pages']}")  # type: ignore[attr-defined]

    with served(sqlite, limits=DEFAULT_LIMITS) as api:
        limit["pages"] = 1
        refused = api.http.post(NODES, json=large("a"))
        assert (refused.status_code, refused.json()["reason"]) == (507, "InsufficientStorage")
        assert int(refused.headers["retry-after"]) >= 1
        assert "disk is full" in refused.json()["message"]
        assert str(sqlite.file.path) not in refused.text
        assert api.http.get("/readyz").status_code == 503
        assert api.http.get("/livez").status_code == 200
        assert api.http.get(NODES).status_code == 200
        limit["pages"] = 1_000_000
        assert api.http.post(NODES, json=large("b")).status_code == 201
        assert api.http.get("/readyz").status_code == 200


def test_a_clock_that_is_set_back_does_not_make_the_disk_full_for_as_long(sqlite: Database) -> None:
    now = 7200 * SECOND
    services = Services(sqlite, Writer(sqlite), Fan(), lambda: now, "test")

    def room() -> str | None:
        return asyncio.run(ready(services))["room"]

    services.full_at = now
    assert room() is not None
    now = 0
    assert room() is None


def test_a_file_that_was_replaced_is_noticed(sqlite: Database, tmp_path: Path) -> None:
    path = sqlite.file.path
    assert path is not None
    with served(sqlite) as api:
        assert api.http.post(NODES, json=node("a")).status_code == 201
        kept, copy = tmp_path / "kept.db", tmp_path / "copy.db"
        shutil.copyfile(path, copy)
        path.rename(kept)
        copy.rename(path)
        refused = api.http.post(NODES, json=node("b"))
        assert refused.status_code == 503
        assert "replaced by another" in refused.json()["message"]
        assert str(path) not in refused.text
        assert api.http.get("/readyz").status_code == 503
        path.unlink()
        assert "was removed" in api.http.get("/readyz").text
        # Whoever puts it back has changed nothing.
        kept.rename(path)
        assert api.http.post(NODES, json=node("b")).status_code == 201
        assert api.http.get("/readyz").status_code == 200
