"""Anchors: signed, kept whole and for their owner alone, and never of a log that was rewritten since the last."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.archived_stores import ended, put
from tests.support.histories import fill, log, rewrite, sql
from tests.support.store_samples import NOW, create_volume, must
from volsched.kube.problems import ConfigurationError
from volsched.log.database import Database
from volsched.log.durable_files import lines_of_file
from volsched.log.errors import StoreError
from volsched.log.integrity.anchors import (
    Anchor,
    KeyFileError,
    PrivateKey,
    anchor_notes,
    anchors_in,
    check_signatures,
    keep_anchor,
    make_keys,
    parse_anchor,
    read_private_key,
    read_public_key,
)
from volsched.log.integrity.verify import verify
from volsched.runtime.anchors import AnchorPlan, Anchors, anchor_plan
from volsched.runtime.settings import Settings


@pytest.fixture
def key(tmp_path: Path) -> PrivateKey:
    make_keys(tmp_path / "anchor.key", tmp_path / "anchor.pub")
    return read_private_key(tmp_path / "anchor.key")


def writer(database: Database, key: PrivateKey, directory: Path | None, *command: str) -> Anchors:
    return Anchors(database, AnchorPlan(key, directory, command, 300), lambda: NOW)


def failing(database: Database) -> bool:
    with database.read() as connection:
        notes = anchor_notes(connection)
    assert notes is not None
    return notes.failing


def test_a_key_is_for_its_owner_and_never_replaced(tmp_path: Path, key: PrivateKey) -> None:
    assert (tmp_path / "anchor.key").stat().st_mode & 0o777 == 0o600
    assert read_public_key(tmp_path / "anchor.pub").name == key.name
    with pytest.raises(KeyFileError, match="exists already"):
        make_keys(tmp_path / "other.key", tmp_path / "anchor.pub")
    assert not (tmp_path / "other.key").exists()
    with pytest.raises(KeyFileError, match="is not a private key"):
        read_private_key(tmp_path / "anchor.pub")
    with pytest.raises(KeyFileError, match="is not a public key"):
        read_public_key(tmp_path / "anchor.key")


def test_a_signature_covers_all_that_an_anchor_says(tmp_path: Path, key: PrivateKey) -> None:
    anchor = parse_anchor(Anchor(7, bytes(32), NOW).signed(key).dump())
    public = read_public_key(tmp_path / "anchor.pub")
    assert anchor.is_signed_by(public)
    make_keys(tmp_path / "2.key", tmp_path / "2.pub")
    other = read_private_key(tmp_path / "2.key")
    wrong = {
        "position": replace(anchor, position=8),
        "hash": replace(anchor, hash=bytes([1]) * 32),
        "at": replace(anchor, at=NOW + 1),
        "signature": replace(anchor, signature=bytes(64)),
        "short": replace(anchor, signature=b"x"),
        "other": Anchor(7, bytes(32), NOW).signed(other),
        "none": Anchor(7, bytes(32), NOW),
    }
    told = [it.problem for it in check_signatures(wrong | {"right": anchor}, public)]
    assert len(told) == len(wrong)
    assert told[-1] == "the anchor none is not signed"
    assert told[-2] == (
        f"the signature of the anchor other is wrong: it names key {other.name}, and {key.name} was given"
    )


def test_an_anchor_is_kept_once_whole_and_for_its_owner(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "anchors"
    path = keep_anchor(directory, Anchor(7, bytes(32), NOW))
    assert (path.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o600, 0o700)
    before = path.read_text()
    assert keep_anchor(directory, Anchor(7, bytes(32), NOW)) == path
    with pytest.raises(StoreError, match="the log was rewritten"):
        keep_anchor(directory, Anchor(7, bytes([1]) * 32, NOW))
    assert (path.read_text(), [*directory.iterdir()]) == (before, [path])


def test_anchors_follow_the_log_and_each_proves_it(database: Database, key: PrivateKey, tmp_path: Path) -> None:
    directory = tmp_path / "anchors"
    anchors = writer(database, key, directory)
    assert anchors.step() is None
    fill(database)
    first = anchors.step()
    assert first is not None
    assert anchors.step() is None
    must(database, create_volume("d"))
    # Another process goes on where the directory ends.
    assert writer(database, key, directory).step() is not None
    kept = [parse_anchor(path.read_text()) for path in anchors_in(directory)]
    assert [it.position for it in kept] == [15, 16]
    assert all(it.is_signed_by(key.public) for it in kept)
    must(database, create_volume("e"))
    report = verify(database, anchors=kept)
    assert (report.ok, report.anchors, report.proven) == (True, 2, kept[1])
    assert not failing(database)


def test_what_was_rewritten_since_the_last_anchor_is_not_signed(
    database: Database, key: PrivateKey, tmp_path: Path
) -> None:
    directory = tmp_path / "anchors"
    fill(database)
    anchors = writer(database, key, directory)
    assert anchors.step()
    must(database, create_volume("d"), create_volume("e"))
    events = log(database)
    rewrite(database, [*events[:9], events[9]._replace(actor="me"), *events[10:]])
    for one in (anchors, writer(database, key, directory)):
        assert one.step() is None
        assert failing(database)
    rewrite(database, events)
    sql(database, "UPDATE events SET actor = 'me' WHERE position = 16")
    assert anchors.step() is None
    rewrite(database, events)
    assert anchors.step()
    assert not failing(database)
    assert len(anchors_in(directory)) == 2


def test_an_anchor_goes_through_a_command_and_its_failure_is_noted(
    database: Database, key: PrivateKey, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(database)
    out = tmp_path / "sent"
    sent = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    assert writer(database, key, None, sys.executable, "-c", sent, str(out)).step()
    assert parse_anchor(out.read_text()).is_signed_by(key.public)
    refused = writer(database, key, None, sys.executable, "-c", "import sys; sys.exit('no route to host')")
    assert refused.step() is None
    assert failing(database)
    assert "ended with 1: no route to host" in caplog.text
    assert writer(database, key, None, str(tmp_path / "nothing")).step() is None


def test_of_many_anchors_the_newest_before_the_first_wrong_one_proves(database: Database) -> None:
    fill(database)
    events = log(database)
    right = [Anchor(it.position, it.hash, it.at) for it in events]
    report = verify(database, anchors=[right[11], replace(right[8], hash=bytes(32)), right[4]])
    assert [it.position for it in report.findings] == [9]
    assert report.proven == right[4]
    assert verify(database).proven is None


def test_anchors_of_archived_events_are_proven_with_the_archives(database: Database, tmp_path: Path) -> None:
    last, out = ended(database), tmp_path / "old.jsonl"
    right = [Anchor(it.position, it.hash, it.at) for it in log(database)]
    put(database, last - 3, out)
    report = verify(database, anchors=[right[2], right[3], right[last - 1]])
    assert (report.ok, report.anchors, report.proven) == (True, 1, right[last - 1])
    wrong = replace(right[3], hash=bytes(32))
    report = verify(database, anchors=[right[2], wrong], archives=[lines_of_file(out)])
    assert [it.position for it in report.findings] == [4]
    # The end of the archive is behind it.
    assert report.proven == right[2]


def test_settings_ask_for_anchors_only_with_a_key(tmp_path: Path, key: PrivateKey) -> None:
    assert anchor_plan(Settings()) is None
    wanted = {"anchor_directory": tmp_path, "anchor_command": "ssh vault 'cat > anchor'"}
    with pytest.raises(ConfigurationError, match="volsched anchor keygen"):
        anchor_plan(Settings(**wanted))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        anchor_plan(Settings(**wanted, anchor_key_file=tmp_path / "none"))
    plan = anchor_plan(Settings(**wanted, anchor_key_file=tmp_path / "anchor.key"))
    assert plan is not None
    assert (plan.key.name, plan.command) == (key.name, ("ssh", "vault", "cat > anchor"))
    with pytest.raises(ConfigurationError, match="ANCHOR_COMMAND"):
        anchor_plan(Settings(anchor_command="ssh 'x", anchor_key_file=tmp_path / "anchor.key"))
