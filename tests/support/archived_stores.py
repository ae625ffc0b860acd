"""Stores to archive from, and all that can be asked of one: what the tests of archives share."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.exported_logs import exported
from tests.support.histories import SECOND, fill, log, views
from tests.support.store_samples import NOW, append, change_volume, create_volume, delete_volume, must
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.durable_files import lines_of_file
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import State
from volsched.log.integrity.anchors import Anchor
from volsched.log.integrity.replay import fold_log
from volsched.log.integrity.verify import verify
from volsched.log.reads.startup import load_world
from volsched.log.reads.tail import position_at, read_head, state_as_of, tail
from volsched.log.retention.archive import Archive, archive

LATER = NOW + 3600 * SECOND
MOVED = (tables.events, tables.snapshots, tables.checkpoints)
ROOT = Path(__file__).parents[2]
Progress = Callable[[int], None]


def ended(database: Database) -> int:
    """`fill` with no binding open any more, and a volume deleted early and one changed late; its last position."""
    must(database, create_volume("old"), delete_volume("old"))
    fill(database)
    over = {"leg": 0, "state": "reverted", "open": False}
    closed = append(
        NewEvent(stream="binding/b2", type="LegMoved", data=over, binding="b2"),
        NewEvent(
            stream="binding/b2", type="BindingMoved", data={"state": "rolledback", "open": False}, binding="b2"
        ),
        NewEvent(stream="volume/b", type="VolumeFreed", data={"binding": "b2"}),
    )
    must(database, closed, create_volume("late"), now=NOW + 6 * SECOND)
    must(database, change_volume("a", {"metadata": {"labels": {"x": "y"}}}), now=NOW + 7 * SECOND)
    return log(database)[-1].position


def put(database: Database, until: int, out: Path, *, progress: Progress | None = None) -> Archive:
    return archive(database, until=until, out=out, now=LATER, progress=progress)


def answers(database: Database, after: int) -> dict[str, Any]:
    """All that can be asked of a store from a position on."""
    with database.read() as connection:
        end = read_head(connection).position
        streams = set(fold_log(connection).states)
        as_of: dict[tuple[str, int], State | None] = {
            (stream, position): state_as_of(connection, stream, position=position)
            for position in range(after, end + 1)
            for stream in streams
        }
        return {
            "views": views(database, *(it for it in tables.metadata.sorted_tables if it not in MOVED)),
            "world": load_world(connection),
            "folds": {position: fold_log(connection, until=position) for position in range(after, end + 1)},
            "as of": as_of,
            "tail": tail(connection, after=after, limit=100),
            "times": {offset: position_at(connection, NOW + offset * SECOND) for offset in range(7, 9)},
            "export": json.loads(exported(database, first=after + 1)[0]),
        }  # fmt: skip


def files(*paths: Path) -> list[Any]:
    return [lines_of_file(path) for path in paths]


def problems(database: Database, *archives: Path, anchor: Anchor | None = None) -> list[str]:
    return [
        str(it)
        for it in verify(database, anchors=[] if anchor is None else [anchor], archives=files(*archives)).findings
    ]
