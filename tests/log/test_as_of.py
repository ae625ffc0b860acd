"""Looking at a store now and at every position of its past: both are what the log folds to."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.archived_stores import ended, put
from tests.support.histories import log
from volsched.log.database import Database
from volsched.log.errors import ArchivedError
from volsched.log.events.fold import AttemptState, BindingState, ObjectState, State
from volsched.log.events.streams import NAMED, noun_and_key
from volsched.log.integrity.replay import fold_log
from volsched.log.reads.as_of import AsOf, view_at, view_at_head
from volsched.log.reads.views import StoreView
from volsched.questions.get.documents import as_manifest

Everything = dict[str, Any]


def shown(look: StoreView) -> Everything:
    """Everything that is there, as people see it, one by one and all at once."""
    every = {f"{it.noun}/{key}": state for it in NAMED for key, state in look.every(it.noun)}
    for stream, state in every.items():
        one = look.one(*noun_and_key(stream))
        assert one is not None
        assert _told(stream, one) == _told(stream, state)
    return {stream: _told(stream, state) for stream, state in every.items()}


def _told(stream: str, state: State) -> Any:
    noun, key = noun_and_key(stream)
    return as_manifest(noun, key, state), state.assumed if isinstance(state, ObjectState) else None


def folded(database: Database, position: int) -> Everything:
    with database.read() as connection:
        states = fold_log(connection, until=position).states
    there = {
        stream: state
        for stream, state in states.items()
        if isinstance(state, BindingState | AttemptState)
        or (isinstance(state, ObjectState) and state.manifest is not None)
    }
    return {stream: _told(stream, state) for stream, state in there.items()}


def test_the_past_is_what_the_log_folds_to_and_its_end_is_now(database: Database) -> None:
    end = ended(database)
    with database.read() as connection:
        for position in range(end + 1):
            assert shown(AsOf(connection, position)) == folded(database, position)
        now = view_at_head(connection)
        assert shown(now) == shown(AsOf(connection, end))


def test_an_archived_past_is_reported_and_the_rest_is_as_before(database: Database, tmp_path: Path) -> None:
    end = ended(database)
    with database.read() as connection:
        before = [shown(AsOf(connection, position)) for position in range(10, end + 1)]
    put(database, 10, tmp_path / "old.jsonl")
    with database.read() as connection:
        assert [shown(AsOf(connection, position)) for position in range(10, end + 1)] == before
        for ask in (lambda look: look.every("volume"), lambda look: look.one("volume", "a")):
            with pytest.raises(ArchivedError, match=r"old\.jsonl"):
                ask(AsOf(connection, 9))


def test_what_concerns_an_object_is_found_now_and_then(database: Database) -> None:
    end = ended(database)
    ids = {it.binding for it in log(database) if it.type == "BindingPlanned"}
    with database.read() as connection:
        for look in (view_at(connection, end), AsOf(connection, end)):
            every = {id_: state for id_, state in look.every("binding") if isinstance(state, BindingState)}
            assert set(every) == ids
            for id_, state in every.items():
                asked = [("pod", state.plan["pod"]), ("node", state.plan["node"])]
                asked += [("claim", leg.claim) for leg in state.legs]
                asked += [("volume", leg.volume) for leg in state.legs if leg.volume]
                for what, key in asked:
                    assert id_ in [it for it, _ in look.bindings_of(what, key)]
                assert {it.stream for it in look.steps_of(id_)} >= {f"binding/{id_}"}
            assert look.bindings_of("volume", "nowhere") == []
            assert look.attempts_of("nowhere") == []
            assert look.notices_about("Pod/nowhere/x") == []
