"""Whatever commands are given, in whatever batches: views are the fold, every prefix of the log is a store, and no
answer depends on what was archived.
"""

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.exported_logs import emptied
from tests.support.extent import extended, extent
from tests.support.histories import log, views
from tests.support.store_samples import NOW, append, change_volume, create_volume, delete_volume, plan
from volsched.log import tables
from volsched.log.commands import Command
from volsched.log.database import Database, open_database
from volsched.log.durable_files import import_log, lines_of_file, verify_export
from volsched.log.events.envelope import NewEvent
from volsched.log.integrity.replay import fold_log
from volsched.log.integrity.verify import rebuild, verify
from volsched.log.migrations import migrate
from volsched.log.reads.startup import load_world
from volsched.log.reads.tail import read_head, state_as_of
from volsched.log.retention import archive as archiving
from volsched.log.retention.export import events_of, manifest_of, write_jsonl
from volsched.log.transaction import execute

pytestmark = extended

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


@settings(max_examples=extent(16, 40), deadline=None)
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


OPEN = list(tables.bindings.columns.keys()).index("open")


def _answers(database: Database, after: int) -> dict[str, Any]:
    with database.read() as connection:
        end = read_head(connection).position
        folds = {position: fold_log(connection, until=position) for position in range(after, end + 1)}
        return {
            "views": views(database),
            "folds": folds,
            "world": load_world(connection),
            "as of": {
                (stream, position): state_as_of(connection, stream, position=position)
                for position, folded in folds.items()
                for stream in folded.states
            },
        }


def _archivable(database: Database) -> int:
    """The last position that may go: not the log's last, and none of an open binding."""
    opened = {f"binding/{row[0]}" for row in views(database, tables.bindings)["bindings"] if row[OPEN]}
    events = log(database)
    first = (it.position for it in events if it.stream in opened)
    return min([len(events), *first]) - 1


@settings(max_examples=extent(8, 20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES, more=BATCHES, cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)), step=st.integers(1, 9))
def test_no_answer_depends_on_what_was_archived(
    database: Database,
    batches: list[list[Command]],
    more: list[list[Command]],
    cuts: tuple[float, float],
    step: int,
) -> None:
    emptied(database)
    for turn, batch in enumerate(batches):
        execute(database, batch, now=NOW + turn)
    last = _archivable(database)
    if last < 1:
        return
    untils = sorted({1 + int(cut * (last - 1)) for cut in cuts})
    before = _answers(database, untils[-1])
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(archiving, "STEP", step)
        files = [Path(directory) / f"{until}.jsonl" for until in untils]
        for until, file in zip(untils, files, strict=True):
            archiving.archive(database, until=until, out=file, now=NOW + 10**12)
        assert _answers(database, untils[-1]) == before
        for turn, batch in enumerate(more):
            execute(database, batch, now=NOW + 100 + turn)
        for archives in ([], [lines_of_file(file) for file in files]):
            report = verify(database, archives=archives)
            assert report.ok, [str(it) for it in report.findings]
        right = views(database)
        assert rebuild(database).findings == []
        with database.read() as connection:
            whole = fold_log(connection)
            manifest = manifest_of(connection, now=NOW)
            rest = io.StringIO()
            write_jsonl(rest, manifest, events_of(connection, manifest))
        rest.seek(0)
        import_log(emptied(database), *map(lines_of_file, files), rest)
        with database.read() as connection:
            assert fold_log(connection) == whole
        assert views(database) == right
