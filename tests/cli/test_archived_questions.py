"""Questions about what was archived: none is answered as if it had never happened."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.store_samples import NOW, change_volume, create_volume, delete_volume, must
from volsched.log.store import open_store

MISSING = "what was before position 4 is archived: 1-3 "


@pytest.fixture
def archived(run: Run, store_file: Path, tmp_path: Path) -> str:
    """Volumes a and b were created and b deleted in what is archived; a was changed and c created after it."""
    database = open_store(f"sqlite:///{store_file}")
    who = "cli/apply/alice"
    must(database, create_volume("a", actor=who), create_volume("b", actor=who), delete_volume("b"), now=NOW)
    later = NOW + 1
    must(database, change_volume("a", {"spec": {"storageClassName": "slow"}}), create_volume("c"), now=later)
    database.close()
    moved = run("archive", "--until", "3", "--out", str(tmp_path / "old.jsonl.gz"), "--db", str(store_file))
    assert moved.code == 0, moved.err
    return str(store_file)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("diff", "--from", "0"), "position 0"),
        (("diff", "--from", "1", "--to", "2"), "position 1"),
        (("audit", "cause", "2"), "position 2"),
        (("history", "pv", "b"), "the history of volume/b"),
        (("audit", "who", "pv", "b"), "the history of volume/b"),
    ],
)
def test_what_was_archived_is_refused_with_the_place_where_it_is(
    run: Run, archived: str, words: tuple[str, ...], what: str
) -> None:
    refused = run(*words, "--db", archived)
    assert refused.code != 0
    assert f"{what} is archived: the log begins at position 4 and earlier events are in 1-3 " in refused.err
    assert refused.out == ""


def test_the_base_is_the_first_moment_that_can_be_compared(run: Run, archived: str) -> None:
    told = json.loads(run("diff", "--from", "3", "--db", archived, "-o", "json").out)["items"]
    assert [(it["name"], it["change"]) for it in told] == [("a", "changed"), ("c", "created")]
    unknown = run("history", "pv", "z", "--db", archived)
    assert (unknown.code, "archived" in unknown.err) == (3, False)


@pytest.mark.parametrize(
    ("words", "items"),
    [
        (("history", "pv", "a"), 1),
        (("audit", "who", "pv", "a"), 1),
        (("audit", "interventions"), 0),
        (("audit", "interventions", "--since", "3"), 0),
        (("audit", "events", "--text", "slow"), 1),
        (("audit", "claims-of", "a"), 0),
        (("audit", "handovers"), 0),
    ],
)
def test_an_answer_about_a_window_says_that_its_beginning_is_archived(
    run: Run, archived: str, words: tuple[str, ...], items: int
) -> None:
    document = json.loads((answer := run(*words, "--db", archived, "-o", "json")).out)
    assert len(document["items"]) == items
    assert document["metadata"]["archived"].startswith(MISSING)
    assert MISSING in answer.err
    assert MISSING in run(*words, "--db", archived).err


@pytest.mark.parametrize("since", ["4", "2023-11-14T22:13:20.000001Z"])
def test_a_window_that_begins_after_the_base_misses_nothing(run: Run, archived: str, since: str) -> None:
    answer = run("audit", "events", "--since", since, "--db", archived, "-o", "json")
    assert len(json.loads(answer.out)["items"]) == 2
    assert "archived" not in answer.out + answer.err
