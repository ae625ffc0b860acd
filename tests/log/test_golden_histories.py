"""Histories that earlier versions wrote must be read for ever: same hashes, same states.

`data/history_vN.jsonl` is an export of version N and is never written again; a changed shape gets an upcaster, and
a new version gets a history of its own beside the old ones. States may gain fields, and lose or change none.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from volsched.log.base import dumped
from volsched.log.database import Database
from volsched.log.durable_files import import_log, verify_export
from volsched.log.integrity.replay import fold_log
from volsched.log.integrity.verify import verify

HISTORIES = sorted((Path(__file__).parent / "data").glob("history_v*.jsonl"))


def lines(history: Path) -> list[str]:
    with history.open(encoding="utf-8") as given:
        return list(given)


def contains(got: Any, expected: Any) -> bool:
    """Whether everything expected is there; mappings may hold more."""
    if isinstance(expected, dict):
        return isinstance(got, dict) and all(key in got and contains(got[key], it) for key, it in expected.items())
    if isinstance(expected, list):
        return isinstance(got, list) and len(got) == len(expected) and all(map(contains, got, expected))
    return bool(got == expected)


def test_there_are_golden_histories() -> None:
    assert HISTORIES


@pytest.mark.parametrize("history", HISTORIES, ids=lambda path: path.stem)
def test_a_golden_history_is_read_as_it_was_meant(database: Database, history: Path) -> None:
    expected = json.loads(history.with_suffix(".expected.json").read_text(encoding="utf-8"))
    assert verify_export(lines(history)).hash.hex() == expected["hash"]
    import_log(database, lines(history))
    assert verify(database).ok
    with database.read() as connection:
        folded = fold_log(connection)
    assert folded.head.position == expected["position"]
    got = {stream: json.loads(dumped(state)) for stream, state in folded.states.items()}
    assert got.keys() == expected["states"].keys()
    for stream, state in expected["states"].items():
        assert contains(got[stream], state), stream
