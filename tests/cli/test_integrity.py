"""`volsched migrate`, `verify`, `rebuild`, `replay`, `export`, `import-log`: what people see, and every fault."""

import json
import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.fresh_stores import unsynced_store
from tests.support.histories import fill, sql
from tests.support.store_samples import NOW, create_volume, must
from volsched.log.database import open_database
from volsched.log.revisions import newest


@pytest.fixture
def db(store_file: Path) -> Path:
    """A store with the fifteen events of `fill`."""
    with unsynced_store(store_file) as database:
        fill(database)
    return store_file


def tamper(db: Path, statement: str) -> None:
    connection = sqlite3.connect(db)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_migrate_makes_the_store_and_may_be_run_again(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "new.db")
    assert run("migrate", "--db", path).out == f"the store is now at revision {newest()}\n"
    assert run("migrate", "--db", path).out == f"the store was already at revision {newest()}\n"
    assert "0 events in 0 streams verified" in run("verify", "--db", path).out


def test_without_db_the_users_data_directory_is_used(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("VOLSCHED_DATABASE_URL", raising=False)
    ran = run("verify")
    assert (ran.code, "nothing here yet: there is no store in" in ran.err) == (1, True)
    assert run("migrate").code == 0
    assert (tmp_path / "data" / "volsched" / "volsched.db").exists()
    assert run("verify").code == 0


def test_the_environment_names_the_store_and_db_overrides_it(
    run: Run, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOLSCHED_DATABASE_URL", "mysql://nowhere/x")
    assert 'scheme "mysql" is not known' in run("verify").err
    assert run("verify", "--db", f"sqlite:///{db}").code == 0


def test_verify_says_what_was_verified(run: Run, db: Path) -> None:
    ran = run("verify", "--db", str(db))
    assert ran.code == 0
    assert ran.out.startswith("15 events in 6 streams verified; last hash ")
    assert ran.err == ""
    told = json.loads(run("verify", "--db", str(db), "-o", "json").out)
    assert (told["ok"], told["position"], told["streams"], told["findings"]) == (True, 15, 6, [])


def test_verify_exits_5_with_the_exact_position(run: Run, db: Path) -> None:
    tamper(db, "UPDATE events SET actor = 'me' WHERE position = 7")
    ran = run("verify", "--db", str(db))
    assert (ran.code, ran.out) == (5, "")
    assert ran.err.startswith(
        "error: position 7, column hash: the event, or the one before, is not the one that was"
    )
    ran = run("verify", "--db", str(db), "-o", "json")
    assert ran.code == 5
    assert json.loads(ran.out)["findings"][0]["position"] == 7


def test_verify_exits_5_with_table_key_column_and_both_values(run: Run, db: Path) -> None:
    tamper(db, "UPDATE volumes SET phase = 'Lost' WHERE key = 'a'")
    ran = run("verify", "--db", str(db))
    assert ran.code == 5
    assert 'volumes "a", column phase: the view differs from the log (expected Bound, got Lost)' in ran.err


def test_many_findings_are_cut_short_on_the_terminal_only(run: Run, db: Path) -> None:
    database = open_database(f"sqlite:///{db}")
    must(database, *(create_volume(f"v{n}") for n in range(30)), now=NOW)
    sql(database, "DELETE FROM volumes")
    database.close()
    lines = run("verify", "--db", str(db)).err.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "error: and 12 more; see them with -o json"
    assert len(json.loads(run("verify", "--db", str(db), "-o", "json").out)["findings"]) == 32


def test_a_tail_cut_with_its_head_is_found_with_the_anchor(run: Run, db: Path, tmp_path: Path) -> None:
    anchor, export, words = tmp_path / "anchor.json", tmp_path / "log.jsonl", ("--db", str(db))
    assert run("verify", *words, "--write-anchor", str(anchor)).code == 0
    assert json.loads(anchor.read_text())["position"] == 15
    assert run("export", *words, str(export)).code == 0
    for given in (anchor, export):
        assert run("verify", *words, "--anchor", str(given)).code == 0
    tamper(db, "DELETE FROM events WHERE position > 5")
    tamper(
        db, "UPDATE log_head SET (position, hash, at) = (SELECT position, hash, at FROM events WHERE position = 5)"
    )
    assert run("rebuild", *words).code == 0
    tamper(db, "DELETE FROM effects")
    assert run("verify", *words).code == 0
    for given in (anchor, export):
        ran = run("verify", *words, "--anchor", str(given))
        assert ran.code == 5
        assert "position 15: the log ends at 5; the anchor was taken of a longer log" in ran.err


def test_verify_says_from_where_on_somebody_with_the_database_could_have_rewritten(
    run: Run, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, anchors = ("--db", str(db)), tmp_path / "anchors"
    assert "nothing outside the database proves this log" in run("verify", *words).out
    assert json.loads(run("verify", *words, "-o", "json").out)["proven"] is None
    pair = str(tmp_path / "anchor.key"), str(tmp_path / "anchor.pub")
    made = run("anchor", "keygen", *pair)
    assert (made.code, made.out.startswith("key ")) == (0, True)
    assert run("anchor", "keygen", *pair).code == 2
    anchors.mkdir()
    first, second = anchors / "anchor-1.json", anchors / "anchor-2.json"
    assert run("verify", *words, "--write-anchor", str(first)).code == 0
    unsigned = run("verify", *words, "--anchor", str(first), "--public-key", pair[1])
    assert (unsigned.code, "the anchor anchor-1.json is not signed" in unsigned.err) == (5, True)
    monkeypatch.setenv("VOLSCHED_ANCHOR_KEY_FILE", pair[0])
    assert run("verify", *words, "--write-anchor", str(first)).code == 0
    database = open_database(f"sqlite:///{db}")
    must(database, create_volume("later"), now=NOW + 9_000_000)
    assert run("verify", *words, "--write-anchor", str(second)).code == 0
    must(database, create_volume("last"), now=NOW + 9_000_000)
    database.close()
    told = run("verify", *words, "--anchor", str(anchors), "--public-key", pair[1])
    assert told.code == 0
    assert "proven up to position 16 (2023-11-14T22:13:29" in told.out
    assert "by a signed anchor; events after it could have been rewritten by anyone who can write" in told.out
    assert "signature was not checked" in run("verify", *words, "--anchor", str(anchors)).out
    second.write_text(second.read_text().replace('"at": 17', '"at": 18'))
    forged = run("verify", *words, "--anchor", str(anchors), "--public-key", pair[1], "-o", "json")
    assert forged.code == 5
    assert json.loads(forged.out)["proven"]["position"] == 15
    (finding,) = json.loads(forged.out)["findings"]
    assert finding["problem"] == "the signature of the anchor anchor-2.json is wrong"
    assert run("verify", *words, "--public-key", pair[1]).code == 2
    (tmp_path / "empty").mkdir()
    assert run("verify", *words, "--anchor", str(tmp_path / "empty")).code == 2


def test_a_token_changed_past_volsched_is_found_by_verify(run: Run, db: Path) -> None:
    words = ("--db", str(db))
    assert run("token", "create", "ci", "--role", "viewer", *words).code == 0
    assert run("token", "revoke", "ci", *words).code == 0
    assert run("verify", *words).code == 0
    tamper(db, "UPDATE tokens SET revoked_at = NULL, roles = '[\"admin\"]'")
    ran = run("verify", *words)
    assert ran.code == 5
    assert (
        "tokens \"ci\", column roles: the token differs from the log (expected ['viewer'], got ['admin'])"
        in ran.err
    )


def test_no_anchor_is_written_of_a_broken_log(run: Run, db: Path, tmp_path: Path) -> None:
    tamper(db, "DELETE FROM events WHERE position = 7")
    assert run("verify", "--db", str(db), "--write-anchor", str(tmp_path / "anchor.json")).code == 5
    assert not (tmp_path / "anchor.json").exists()


def test_rebuild_tells_what_it_repaired(run: Run, db: Path) -> None:
    tamper(db, "UPDATE volumes SET phase = 'Lost' WHERE key = 'a'")
    ran = run("rebuild", "--db", str(db))
    assert ran.code == 0
    assert 'repaired volumes "a", column phase' in ran.out
    assert ran.out.endswith("the views are what the log says at position 15; 1 repairs\n")
    told = json.loads(run("rebuild", "--db", str(db), "-o", "json").out)
    assert told == {"position": 15, "repaired": []}


def test_rebuild_refuses_a_broken_log(run: Run, db: Path) -> None:
    tamper(db, "DELETE FROM events WHERE position = 7")
    ran = run("rebuild", "--db", str(db))
    assert (ran.code, "position 7: the event is missing" in ran.err) == (5, True)


def test_replay_counts_what_there_was_at_a_position_or_time(run: Run, db: Path) -> None:
    whole = json.loads(run("replay", "--db", str(db), "-o", "json").out)
    assert whole["position"] == 15
    assert whole["kinds"]["volume"] == {"there": 2, "gone": 1}
    part = json.loads(run("replay", "--db", str(db), "--until", "3", "-o", "json").out)
    assert part["kinds"] == {"volume": {"there": 3, "gone": 0}}
    for time in ("2023-11-14T22:13:21Z", "2023-11-14 22:13:21", "2023-11-14T23:13:21+01:00"):
        assert json.loads(run("replay", "--db", str(db), "--until", time, "-o", "json").out)["position"] == 4
    table = run("replay", "--db", str(db)).out
    assert "volume       2     1" in table
    assert "15 events in " in table


@pytest.mark.parametrize(
    ("until", "code", "message"),
    [
        ("99", 3, "position 99 does not exist yet; the log ends at 15"),
        ("soon", 2, '"soon" is neither a position nor a time'),
        ("-3", 2, '"-3" is neither a position nor a time'),
    ],
)
def test_replay_until_nowhere_is_refused(run: Run, db: Path, until: str, code: int, message: str) -> None:
    ran = run("replay", "--db", str(db), f"--until={until}")
    assert (ran.code, message in ran.err) == (code, True)


def test_an_export_is_imported_elsewhere_and_verifies(run: Run, db: Path, tmp_path: Path) -> None:
    file, copy = tmp_path / "log.jsonl", str(tmp_path / "copy.db")
    assert run("export", "--db", str(db), str(file)).code == 0
    assert run("import-log", "--check", str(file)).out == "15 events verified, positions 1 to 15\n"
    assert run("migrate", "--db", copy).code == 0
    assert run("import-log", "--db", copy, str(file)).out == "15 events imported, positions 1 to 15\n"
    told, proof = run("verify", "--db", copy, "--anchor", str(file)).out.splitlines()
    assert told == run("verify", "--db", str(db)).out.splitlines()[0]
    assert proof.startswith("proven up to position 15 (2023-11-14T22:13:25Z) by an anchor or archive that is not")
    ran = run("import-log", "--db", copy, str(file))
    assert (ran.code, "has 15 events already" in ran.err) == (1, True)


def test_export_to_standard_output_is_data_only(run: Run, db: Path) -> None:
    ran = run("export", "--db", str(db), "--from", "4", "--to", "6", "-")
    assert ran.err == ""
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [line["position"] for line in lines[1:]] == [4, 5, 6]
    ran = run("import-log", "--check", "-", stdin=ran.out.encode())
    assert ran.out == "3 events verified, positions 4 to 6\n"
    assert run("export", "--db", str(db), "-o", "csv", "-").out.startswith("position,stream,version,")


def test_a_tampered_file_exits_5_with_line_and_position(run: Run, db: Path, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    run("export", "--db", str(db), str(file))
    file.write_text(file.read_text().replace("scheduler", "somebody", 1))
    ran = run("import-log", "--check", str(file))
    assert (ran.code, "line 7: position 6: " in ran.err) == (5, True)
    file.write_bytes(b"\x1f\x8b\xff\xfe")
    ran = run("import-log", "--check", str(file))
    assert (ran.code, "line 1: this is not the manifest of an export" in ran.err) == (5, True)


def test_an_export_that_fails_leaves_no_file(run: Run, db: Path, tmp_path: Path) -> None:
    tamper(db, "UPDATE events SET actor = 'me' WHERE position = 7")
    ran = run("export", "--db", str(db), str(tmp_path / "log.jsonl"))
    assert (ran.code, "position 7" in ran.err) == (5, True)
    assert not list(tmp_path.glob("log.jsonl*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["verify", "--anchor", "gone.json"], "gone.json cannot be read: No such file or directory"),
        (["import-log", "gone.jsonl"], "gone.jsonl cannot be read: No such file or directory"),
        (["verify", "--archive", "gone.jsonl"], "gone.jsonl cannot be read: No such file or directory"),
        (["import-log", "--check", "gone.jsonl.gz"], "gone.jsonl.gz cannot be read: No such file"),
        (["export", "gone/log.jsonl"], "gone/log.jsonl cannot be written: No such file or directory"),
        (["verify", "--write-anchor", "gone/anchor.json"], "gone/anchor.json cannot be written"),
    ],
)
def test_files_that_cannot_be_read_or_written_are_named(
    run: Run, db: Path, words: list[str], message: str
) -> None:
    ran = run(*words, "--db", str(db))
    assert (ran.code, message in ran.err) == (2, True)


def test_what_is_no_anchor_is_refused(run: Run, db: Path, tmp_path: Path) -> None:
    (tmp_path / "anchor.json").write_text("{}")
    ran = run("verify", "--db", str(db), "--anchor", str(tmp_path / "anchor.json"))
    assert (ran.code, "this is not an anchor" in ran.err) == (1, True)


USING = (["verify"], ["rebuild"], ["replay"], ["export", "-"], ["archive", "--until", "7", "--out", "x.jsonl"])


@pytest.mark.parametrize("words", USING, ids=lambda words: words[0])
def test_a_store_that_is_not_migrated_says_the_command(run: Run, tmp_path: Path, words: list[str]) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()
    for path in (empty, tmp_path / "gone.db"):
        ran = run(*words, "--db", str(path))
        assert (ran.code, "run: volsched migrate" in ran.err) == (1, True)
        assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("words", USING, ids=lambda words: words[0])
def test_a_newer_store_is_refused(run: Run, db: Path, words: list[str]) -> None:
    tamper(db, "UPDATE log_head SET min_reader = 9")
    ran = run(*words, "--db", str(db))
    assert (ran.code, "readers of format 9 or newer" in ran.err) == (1, True)
    # Newer tables alone are no reason: two versions share a store during an upgrade (tests/log/test_upgrade.py).
    tamper(db, "UPDATE alembic_version SET version_num = '9999'")
    ran = run("migrate", "--db", str(db))
    assert (ran.code, "readers of format 9 or newer" in ran.err) == (1, True)


def test_a_store_for_newer_writers_may_be_read_but_not_repaired(run: Run, db: Path) -> None:
    tamper(db, "UPDATE log_head SET min_writer = 9")
    assert run("verify", "--db", str(db)).code == 0
    ran = run("rebuild", "--db", str(db))
    assert (ran.code, "writers of format 9 or newer" in ran.err) == (1, True)


def test_a_file_that_is_no_database_is_reported(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "notes.db"
    file.write_text("these are not the rows you are looking for\n" * 100)
    for words in (*USING, ["migrate"]):
        ran = run(*words, "--db", str(file))
        assert (ran.code, "this is not an SQLite database" in ran.err) == (1, True)


def test_a_truncated_file_is_damaged_and_exits_5(run: Run, db: Path) -> None:
    tamper(db, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = db.read_bytes()
    db.write_bytes(data[: len(data) // 2 // 4096 * 4096])
    ran = run("verify", "--db", str(db))
    assert (ran.code, "the file is damaged; restore a backup" in ran.err) == (5, True)


def test_a_scribbled_file_is_damaged_and_exits_5(run: Run, db: Path) -> None:
    tamper(db, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(db.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 200] = b"\xa5" * 200
    db.write_bytes(data)
    ran = run("verify", "--db", str(db))
    assert (ran.code, "the file is damaged; restore a backup" in ran.err) == (5, True)


def test_a_read_only_file_can_be_verified_but_not_repaired(run: Run, db: Path) -> None:
    """By SQLite's own read-only mode: the tests may run as root, whom permissions do not stop."""
    tamper(db, "UPDATE volumes SET phase = 'Lost' WHERE key = 'a'")
    url = f"sqlite:///file:{db}?mode=ro&uri=true"
    assert run("verify", "--db", url).code == 5
    ran = run("rebuild", "--db", url)
    assert (ran.code, "the database is read-only; check the file's permissions" in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://root@db/x", 'database URL scheme "mysql" is not known; there are sqlite and postgresql'),
        ("postgresql://[::1", "is not a database URL"),
        ("postgresql://nobody@127.0.0.1:1/x", "the server does not answer"),
    ],
)
def test_a_url_that_leads_nowhere_is_explained(run: Run, url: str, message: str) -> None:
    for words in (["verify"], ["migrate"]):
        ran = run(*words, "--db", url)
        assert (ran.code, message in ran.err) == (1, True)


def test_a_directory_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    ran = run("migrate", "--db", str(tmp_path / "gone" / "store.db"))
    assert ran.code == 1
    assert f"directory {tmp_path / 'gone'} does not exist; create it" in ran.err


@pytest.mark.parametrize("verb", ["migrate", "verify", "rebuild", "replay", "export", "import-log", "archive"])
def test_help_has_examples(run: Run, verb: str) -> None:
    ran = run(verb, "--help")
    assert ran.code == 0
    assert f"volsched {verb}" in ran.out.split("Examples")[1]


def test_an_archive_is_verified_and_restored_with_the_rest(run: Run, db: Path, tmp_path: Path) -> None:
    whole = run("verify", "--db", str(db)).out.splitlines()[0]
    one, two, rest, copy = (str(tmp_path / name) for name in ("1.jsonl.gz", "2.jsonl", "rest.jsonl", "copy.db"))
    ran = run("archive", "--db", str(db), "--until", "2023-11-14T22:13:21Z", "--out", one)
    assert ran.out == (
        f"positions 1 to 4 are in {one}; 4 events were taken out of the store, which begins at 5 now\n"
    )
    ran = run("archive", "--db", str(db), "--until", "7", "--out", two, "-o", "json")
    assert json.loads(ran.out) == {"file": two, "first": 5, "last": 7, "removed": 3}
    told, hint, _ = run("verify", "--db", str(db)).out.splitlines()
    assert told.startswith("8 events after position 7 in 6 streams verified; last hash ")
    assert hint.startswith("positions 1 to 7 are archived and were not looked at: prove them with --archive (1-4 ")
    told, proof = run("verify", "--db", str(db), "--archive", one, "--archive", two).out.splitlines()
    assert (told, proof.startswith("proven up to position 7 (")) == (whole, True)
    told = json.loads(run("verify", "--db", str(db), "-o", "json").out)
    assert (told["after"], told["position"], told["archives"]) == (7, 15, [f"1-4 {one}", f"5-7 {two}"])
    assert json.loads(run("replay", "--db", str(db), "-o", "json").out)["events"] == 8
    assert run("export", "--db", str(db), rest).code == 0
    assert run("import-log", "--check", one, two, rest).out == "15 events verified, positions 1 to 15\n"
    assert run("migrate", "--db", copy).code == 0
    assert run("import-log", "--db", copy, one, two, rest).out == "15 events imported, positions 1 to 15\n"
    assert run("verify", "--db", copy, "--anchor", one).out.splitlines()[0] == whole


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--until", "99"], 3, "position 99 does not exist yet; the log ends at 15"),
        (["--until", "15"], 1, "position 15 cannot be archived: the log ends at 15 and its last event stays"),
        (["--until", "8"], 1, 'binding "b2" is open and its history begins at 8; give 7 or less'),
        (["--until", "0"], 1, "there is no position 0; the log begins at 1"),
        (["--until", "soon"], 2, '"soon" is neither a position nor a time'),
        (["--until", "7", "--out", "gone/old.jsonl"], 1, "gone/old.jsonl cannot be written: No such file"),
    ],
)
def test_what_cannot_be_archived_is_refused(
    run: Run, db: Path, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    out = [] if "--out" in words else ["--out", str(tmp_path / "old.jsonl")]
    ran = run("archive", "--db", str(db), *words, *out)
    assert (ran.code, message in ran.err) == (code, True)
    assert not list(tmp_path.glob("*.jsonl"))


def test_what_is_archived_is_named_where_it_is_asked_for(run: Run, db: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "old.jsonl")
    run("archive", "--db", str(db), "--until", "7", "--out", out)
    asked = (
        ["replay", "--until", "3"],
        ["replay", "--until", "2023-11-14T22:13:21Z"],
        ["export", "--from", "2", "-"],
    )
    for words in asked:
        ran = run(*words, "--db", str(db))
        assert ran.code == 3
        assert f"the log begins at position 8 and earlier events are in 1-7 {out}" in ran.err
    assert run("replay", "--db", str(db), "--until", "7").code == 0
    ran = run("archive", "--db", str(db), "--until", "5", "--out", str(tmp_path / "more.jsonl"))
    assert (ran.code, "position 5 is archived already" in ran.err) == (1, True)


def test_an_archive_that_is_wrong_is_named_with_its_line(run: Run, db: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    run("archive", "--db", str(db), "--until", "4", "--out", str(one))
    run("archive", "--db", str(db), "--until", "7", "--out", str(two))
    ran = run("import-log", "--check", str(two), str(one))
    assert (ran.code, f"{one}: line 1: the file begins at position 1 and does not follow" in ran.err) == (5, True)
    two.write_text(two.read_text().replace("scheduler", "somebody", 1))
    proven = ["--archive", str(one), "--archive", str(two)]
    for words in (["import-log", "--check", str(one), str(two)], ["verify", "--db", str(db), *proven]):
        ran = run(*words)
        assert (ran.code, f"{two}: line 3: position 6: " in ran.err) == (5, True)
