"""Old events lose who and why, the log says so, and all that is proven stays proven. Nothing else may change."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.archived_stores import LATER, answers, ended, put
from tests.support.histories import log, rewrite, sql, views
from tests.support.store_samples import (
    NOW,
    append,
    change_volume,
    create_volume,
    delete_volume,
    must,
    plan,
    volume_manifest,
)
from volsched.log import tables
from volsched.log.base import EVERY
from volsched.log.database import Database
from volsched.log.durable_files import import_log, lines_of_file, verify_export
from volsched.log.errors import StoreError
from volsched.log.events.envelope import (
    BLANK,
    LAST_APPLIED,
    REDACTION,
    Event,
    NewEvent,
    Redact,
    canonical,
    redacted,
    seal_of,
)
from volsched.log.integrity.anchors import parse_anchor
from volsched.log.integrity.verify import rebuild, verify
from volsched.log.migrations import scratch_store
from volsched.log.reads.tail import state_as_of
from volsched.log.retention.backup import back_up, restore
from volsched.log.retention.export import ExportError, events_of, manifest_of, write_jsonl
from volsched.log.retention.redaction import STEP, Redacted, redact

ALL = tuple(Redact)
NOTES = {"team": "alice@example.com", "volsched.io/binding": "b1", LAST_APPLIED: '{"team":"alice"}'}
WHO = "cli/apply/alice"


def _volume(
    name: str, type_: str, patch: dict[str, Any] | None = None, why: str | None = "alice asked"
) -> NewEvent:
    data: dict[str, Any] = {} if patch is None else {"patch": patch}
    return NewEvent(stream=f"volume/{name}", type=type_, data=data | ({} if why is None else {"reason": why}))


def story(database: Database) -> int:
    """A volume of alice's that is gone, one that lives, and what our own processes did; the last position."""
    gone = volume_manifest("gone")
    must(
        database,
        append(
            _volume("gone", "VolumeCreated", gone | {"metadata": {"name": "gone", "annotations": NOTES}}),
            actor=WHO,
        ),
        append(_volume("lives", "VolumeCreated", volume_manifest("lives")), actor=WHO),
        append(_volume("lives", "VolumeChanged", {"metadata": {"annotations": NOTES}}), actor=WHO),
        append(
            _volume("gone", "VolumeChanged", {"metadata": {"annotations": {"team": None}}}), actor="controller/1"
        ),
        append(_volume("gone", "VolumeDeleted"), actor=WHO),
    )
    must(database, create_volume("last"), now=NOW + 1_000_000)
    return 5


def done(database: Database, until: int, *what: Redact, **given: Any) -> Redacted:
    return redact(database, until=until, what=what or ALL, actor="cli/retention/bob", now=LATER, **given)


def test_who_why_and_the_annotations_of_what_is_gone_are_redacted_and_the_log_still_verifies(
    database: Database,
) -> None:
    until, before = story(database), log(database)
    right = views(database)
    told = done(database, until, reason="90 days")
    assert (told.events, told.first) == (5, 1)
    after = log(database)
    assert [it.hash for it in after[:6]] == [it.hash for it in before]
    assert [it.actor for it in after] == [
        "cli/apply/redacted", "cli/apply/redacted", "cli/apply/redacted", "controller/1", "cli/apply/redacted",
        "test", "cli/retention/bob",
    ]  # fmt: skip
    assert "alice" not in "".join(it.data for it in after[:2] + after[3:])
    gone = json.loads(after[0].data)["patch"]["metadata"]["annotations"]
    assert gone == {"team": BLANK, "volsched.io/binding": "b1", LAST_APPLIED: BLANK}
    assert json.loads(after[3].data)["patch"]["metadata"]["annotations"] == {"team": None}
    # What lives keeps what it consists of; only who wrote it and why is gone.
    assert json.loads(after[2].data) == {"patch": {"metadata": {"annotations": NOTES}}, "reason": BLANK}
    assert views(database) == right
    report = verify(database)
    assert (report.findings, report.redacted) == ([], [1, 2, 3, 4, 5])
    assert rebuild(database).findings == []


def test_the_log_says_what_was_redacted_by_whom_and_why(sqlite: Database) -> None:
    done(sqlite, story(sqlite), Redact.ACTORS, reason="ticket 12")
    said = log(sqlite)[-1]
    data = json.loads(said.data)
    assert (said.type, said.actor, said.stream) == (REDACTION, "cli/retention/bob", "retention/redactions")
    assert (data["first"], data["last"], data["what"], data["reason"]) == (1, 5, ["actors"], "ticket 12")
    assert sorted(data["seals"]) == ["1", "2", "3", "5"]


def test_a_second_run_changes_nothing_and_more_can_be_redacted_later(sqlite: Database) -> None:
    until = story(sqlite)
    done(sqlite, until, Redact.ACTORS)
    once = log(sqlite)
    assert done(sqlite, until, Redact.ACTORS).events == 0
    assert log(sqlite) == once
    assert done(sqlite, until, Redact.REASONS).events == 5
    assert verify(sqlite).redacted == [1, 2, 3, 4, 5]


def test_a_dry_run_counts_and_writes_nothing(sqlite: Database) -> None:
    until, before = story(sqlite), log(sqlite)
    assert done(sqlite, until, dry_run=True).events == 5
    assert log(sqlite) == before


TAMPERING: dict[str, str] = {
    "what is left of one": "UPDATE events SET data = replace(data, 'redacted', 'me') WHERE position = 2",
    "its actor": "UPDATE events SET actor = 'cli/apply/bob' WHERE position = 2",
    "one that was not redacted": "UPDATE events SET actor = 'cli/apply/redacted' WHERE position = 6",
    "the redaction itself": "UPDATE events SET data = replace(data, 'actors', 'nothing') WHERE position = 7",
    "the hash that was kept": (
        "UPDATE events SET hash = (SELECT hash FROM events WHERE position = 3) WHERE position = 2"
    ),
}


@pytest.mark.parametrize("statement", TAMPERING.values(), ids=TAMPERING.keys())
def test_whatever_else_is_changed_is_found(database: Database, statement: str) -> None:
    done(database, story(database))
    sql(database, statement)
    (finding,) = verify(database).findings
    assert "not the one that was written" in finding.problem
    with pytest.raises(StoreError):
        rebuild(database)


def test_an_edit_that_nobody_announced_is_no_redaction(sqlite: Database) -> None:
    """Not even one that looks like it."""
    story(sqlite)
    sql(sqlite, "UPDATE events SET actor = 'cli/apply/redacted' WHERE position = 2")
    assert verify(sqlite).findings[0].position == 2


REFUSED: list[tuple[str, Callable[[Database], int], str]] = [
    ("the last event", lambda it: len(log(it)), "its last event stays"),
    ("what is open", lambda it: _opened(it), 'binding "b9" is open'),
]


def _opened(database: Database) -> int:
    must(database, plan("b9", "last"), now=NOW + 2_000_000)
    must(database, create_volume("more"), now=NOW + 3_000_000)
    return len(log(database)) - 1


@pytest.mark.parametrize(("prepare", "told"), [it[1:] for it in REFUSED], ids=[it[0] for it in REFUSED])
def test_what_somebody_may_still_need_is_refused(
    sqlite: Database, prepare: Callable[[Database], int], told: str
) -> None:
    story(sqlite)
    until = prepare(sqlite)
    with pytest.raises(StoreError, match=told):
        done(sqlite, until)


def test_a_name_that_is_used_again_keeps_what_its_second_life_consists_of(sqlite: Database) -> None:
    noted = volume_manifest("a") | {"metadata": {"name": "a", "annotations": NOTES}}
    first, second = _volume("a", "VolumeCreated", noted), _volume("a", "VolumeCreated", noted)
    must(sqlite, append(first), delete_volume("a"), append(second), create_volume("last"))
    done(sqlite, 3)
    notes = [
        json.loads(it.data)["patch"]["metadata"].get("annotations") for it in (log(sqlite)[0], log(sqlite)[2])
    ]
    assert [it["team"] for it in notes] == [BLANK, "alice@example.com"]
    assert verify(sqlite).ok


def test_snapshots_of_a_life_that_is_gone_do_not_keep_what_was_redacted(sqlite: Database) -> None:
    must(sqlite, append(_volume("long", "VolumeCreated", {"metadata": {"annotations": NOTES}})))
    must(sqlite, *(change_volume("long", {"status": {"n": number}}) for number in range(EVERY)))
    must(sqlite, delete_volume("long"), create_volume("last"))
    assert "alice" in str(views(sqlite, tables.snapshots))
    done(sqlite, EVERY + 2)
    assert "alice" not in str(views(sqlite, tables.snapshots))
    assert verify(sqlite).ok
    with sqlite.read() as connection:
        assert "alice" not in str(state_as_of(connection, "volume/long", position=EVERY + 1))


def test_more_than_a_step_is_redacted_in_several_and_can_be_taken_up_again(sqlite: Database) -> None:
    count = STEP + 20
    must(sqlite, *(create_volume(f"v{number}", actor=WHO) for number in range(count)))
    must(sqlite, create_volume("last"))

    class StoppedError(Exception):
        pass

    def stop(_: int) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        done(sqlite, count, progress=stop)
    assert len(verify(sqlite).redacted) == STEP
    assert done(sqlite, count).events == 20
    assert (len(verify(sqlite).redacted), verify(sqlite).ok) == (count, True)


# Files ---------------------------------------------------------------------------------------------------


def _exported(database: Database) -> list[str]:
    out = io.StringIO()
    with database.read() as connection:
        manifest = manifest_of(connection, now=LATER)
        write_jsonl(out, manifest, events_of(connection, manifest))
    return out.getvalue().splitlines(keepends=True)


def test_an_export_of_a_redacted_log_proves_itself_and_becomes_the_same_store(sqlite: Database) -> None:
    done(sqlite, story(sqlite))
    lines = _exported(sqlite)
    verify_export(lines)
    with pytest.raises(ExportError, match="position 1"):
        verify_export([it.replace("cli/apply/redacted", "cli/apply/me") for it in lines])
    with scratch_store() as copy:
        import_log(copy, lines)
        assert (log(copy), verify(copy).redacted) == (log(sqlite), [1, 2, 3, 4, 5])


def test_archives_of_redacted_events_are_proven_with_what_the_log_says(sqlite: Database, tmp_path: Path) -> None:
    """The events are archived, and the one that says they were redacted is still here."""
    last = ended(sqlite)
    must(sqlite, create_volume("tail"), now=NOW + 8_000_000)
    whole = answers(sqlite, last)
    done(sqlite, last - 1, Redact.ACTORS)
    assert verify(sqlite).redacted == []  # none of them was a person's
    must(sqlite, create_volume("by-alice", actor=WHO), create_volume("end"), now=NOW + 9_000_000)
    at = next(it.position for it in log(sqlite) if it.actor == WHO)
    done(sqlite, at)
    put(sqlite, at, tmp_path / "one.jsonl")
    assert whole["world"].position == last + 1
    assert verify(sqlite).ok
    report = verify(sqlite, archives=[lines_of_file(tmp_path / "one.jsonl")])
    assert (report.findings, report.redacted) == ([], [at])
    with scratch_store() as copy:
        with pytest.raises(StoreError, match=f"position {at} was redacted, and that is recorded after {at}"):
            import_log(copy, lines_of_file(tmp_path / "one.jsonl"))
        import_log(copy, lines_of_file(tmp_path / "one.jsonl"), _exported(sqlite))
        assert verify(copy).redacted == [at]


def test_an_archive_that_claims_a_redaction_of_which_the_log_says_nothing_is_found(
    sqlite: Database, tmp_path: Path
) -> None:
    story(sqlite)
    put(sqlite, 3, tmp_path / "one.jsonl")
    lines = [*lines_of_file(tmp_path / "one.jsonl")]
    second = Event(**{**json.loads(lines[2]), "hash": bytes.fromhex(json.loads(lines[2])["hash"])})
    second = second._replace(data=canonical(second.data))
    forged = redacted(second, ALL, ended=False)
    head = json.loads(lines[0]) | {"redacted": {"2": seal_of(forged).hex()}}
    told = json.loads(lines[2]) | {"actor": forged.actor, "data": json.loads(forged.data)}
    report = verify(sqlite, archives=[[json.dumps(head), lines[1], json.dumps(told), *lines[3:]]])
    assert [str(it) for it in report.findings] == [
        "position 2: an archive holds it redacted, and the log has no record of the redaction"
    ]


def test_a_backup_of_a_redacted_store_is_restored(sqlite: Database, tmp_path: Path) -> None:
    done(sqlite, story(sqlite))
    back_up(sqlite, out=tmp_path / "b.jsonl", now=NOW)
    with scratch_store() as copy:
        restore(copy, lines_of_file(tmp_path / "b.jsonl"))
        assert verify(copy).redacted == [1, 2, 3, 4, 5]


def test_who_rewrites_the_log_around_a_redaction_is_found_by_an_anchor_only(sqlite: Database) -> None:
    """As without redactions: a forgery without a seam needs something that was kept elsewhere."""
    done(sqlite, story(sqlite))
    anchor = parse_anchor(_exported(sqlite)[0])
    rewrite(sqlite, [it for it in log(sqlite) if it.type != REDACTION])
    assert verify(sqlite, anchors=[anchor]).findings
