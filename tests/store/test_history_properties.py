"""Whatever commands are given, in whatever batches: views are the fold, and every prefix of the log is a store."""

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.samples import NOW, append, change_volume, create_volume, delete_volume, plan
from volsched.events.envelope import NewEvent
from volsched.store.commands import Command
from volsched.store.database import Database, open_database
from volsched.store.log import read_head, state_as_of
from volsched.store.migrations import migrate
from volsched.store.replay import fold_log
from volsched.store.transaction import execute
from volsched.store.transfer import events_of, import_log, manifest_of, verify_export, write_jsonl
from volsched.store.verify import verify

NAMES = st.sampled_from("abc")
BINDINGS = st.sampled_from(["b1", "b2", "b3"])
PATCHES = st.dictionaries(
    st.sampled_from(["metadata", "spec", "status"]),
    st.dictionaries(
        st.sampled_from(["x", "y", "phase", "uid", "claimRef"]),
        st.none() | st.text("aä\"\\", max_size=2) | st.integers() | st.booleans()
        | st.floats(allow_nan=False, allow_infinity=False) | st.lists(st.none() | st.integers(0, 2), max_size=2)
        | st.dictionaries(st.sampled_from(["name", "namespace", "x"]), st.none() | st.just("v"), max_size=2),
        max_size=3,
    )
    | st.none(),
    max_size=3,
)  # fmt: skip


def _event(stream: str, type_: str, data: dict[str, Any]) -> Command:
    return append(NewEvent(stream=stream, type=type_, data=data))


COMMANDS = st.one_of(
    st.builds(create_volume, NAMES, st.sampled_from(["1Gi", "2Gi", "much"])),
    st.builds(change_volume, NAMES, PATCHES),
    st.builds(delete_volume, NAMES),
    st.builds(lambda b, v, c: plan(b, v, claim=c), BINDINGS, NAMES, st.sampled_from(["n/c", "n/d"])),
    st.builds(lambda v, b: _event(f"volume/{v}", "VolumeFreed", {"binding": b}), NAMES, BINDINGS),
    st.builds(
        lambda v, b, patch, rv: _event(f"volume/{v}", "VolumeAssumed", {"binding": b, "patch": patch, "rv": rv}),
        NAMES, BINDINGS, PATCHES, st.integers(0, 9),
    ),
    st.builds(
        lambda b, leg, is_open: _event(f"binding/{b}", "LegMoved", {"leg": leg, "state": "s", "open": is_open}),
        BINDINGS, st.integers(0, 1), st.booleans(),
    ),
    st.builds(
        lambda b, is_open: _event(f"binding/{b}", "BindingMoved", {"state": "s", "open": is_open}),
        BINDINGS, st.booleans(),
    ),
)  # fmt: skip
BATCHES = st.lists(st.lists(COMMANDS, min_size=1, max_size=6), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to copy for every example."""
    path = tmp_path_factory.mktemp("template") / "store.db"
    database = open_database(f"sqlite:///{path}")
    migrate(database)
    database.close()
    return path


@pytest.fixture(scope="module")
def copies(template: Path) -> Iterator["Copies"]:
    with TemporaryDirectory() as directory:
        yield Copies(template, Path(directory))


class Copies:
    def __init__(self, template: Path, directory: Path) -> None:
        self.template, self.directory, self.made = template, directory, 0

    def new(self) -> Database:
        self.made += 1
        path = self.directory / f"{self.made}.db"
        shutil.copy(self.template, path)
        return open_database(f"sqlite:///{path}")


def _export(database: Database, last: int) -> list[str]:
    out = io.StringIO()
    with database.read() as connection:
        manifest = manifest_of(connection, last=last, now=NOW)
        write_jsonl(out, manifest, events_of(connection, manifest))
    return list(io.StringIO(out.getvalue()))


@settings(max_examples=40, deadline=None)
@given(batches=BATCHES, cut=st.floats(0, 1))
def test_views_are_the_fold_and_any_prefix_is_a_store(
    copies: Copies, batches: list[list[Command]], cut: float
) -> None:
    database = copies.new()
    for turn, batch in enumerate(batches):
        execute(database, batch, now=NOW + turn)
    report = verify(database)
    assert report.ok, [str(it) for it in report.findings]
    with database.read() as connection:
        end = read_head(connection).position
    if end == 0:
        database.close()
        return
    last = 1 + int(cut * (end - 1))
    lines = _export(database, last)
    assert verify_export(lines).last == last
    other = copies.new()
    import_log(other, lines)
    report = verify(other)
    assert report.ok, [str(it) for it in report.findings]
    with database.read() as whole, other.read() as part:
        then = fold_log(whole, until=last).states
        assert fold_log(part).states == then
        for stream, state in then.items():
            assert state_as_of(whole, stream, position=last) == state
    database.close()
    other.close()
