"""The tables beside the log: a row that somebody changed, or made up, is found wherever the log knows better."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.archived_stores import ended, put
from tests.support.histories import SECOND, fill, log, rewrite, sql
from tests.support.store_samples import NOW, append, must
from volsched.log.base import BaseRow, base_rows, sum_of
from volsched.log.database import Database
from volsched.log.durable_files import lines_of_file
from volsched.log.errors import Finding
from volsched.log.events.envelope import NewEvent
from volsched.log.integrity.verify import verify
from volsched.log.leases import acquire, free
from volsched.log.tokens import StoredToken, contradicted_tokens, fingerprint, issue, revoke

ID = "00112233445566ff"
DONE = (
    "INSERT INTO effects_done (key, lane, queue, kind, binding, data, outcome, attempts, done_at) "
    "VALUES ('{key}', 'b', '{kind}', '{kind}', '{binding}', '{{}}', 'done', 1, 5)"
)


def token(name: str = "ci", **more: Any) -> StoredToken:
    given: dict[str, Any] = {
        "name": name, "id": hashlib.sha256(name.encode()).hexdigest()[:16], "hash": bytes(range(32)),
        "roles": ("viewer",), "namespaces": ("shop",), "issued_at": NOW, "issued_by": "cli/token/ada",
        "expires_at": NOW + SECOND,
    }  # fmt: skip
    return StoredToken(**given | more)


def told(database: Database) -> list[tuple[str | None, str | None, str | None, Any, Any]]:
    return [(it.table, it.key, it.column, it.expected, it.got) for it in verify(database).findings]


def test_tokens_as_they_were_issued_and_revoked_verify(database: Database) -> None:
    issue(database, token())
    issue(database, token("everywhere", namespaces=None, expires_at=None, roles=("admin", "auditor")))
    revoke(database, "ci", actor="cli/token/ada", now=NOW + 1)
    issue(database, token(id=ID))
    revoke(database, "everywhere", actor="cli/token/ada", now=NOW + 2)
    report = verify(database)
    assert (report.ok, report.gaps) == (True, [])


EDITS: dict[str, tuple[str, Any, Any]] = {
    "roles = '[\"admin\"]'": ("roles", ["viewer"], ["admin"]),
    "namespaces = NULL": ("namespaces", ["shop"], None),
    "expires_at = NULL": ("expires_at", NOW + SECOND, None),
    "revoked_at = NULL": ("revoked_at", NOW + 1, None),
    f"id = '{ID}'": ("id", token().id, ID),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_token_that_was_changed_is_found_in_any_column_that_decides(database: Database, edit: str) -> None:
    issue(database, token())
    if "revoked" in edit:
        revoke(database, "ci", actor="cli/token/ada", now=NOW + 1)
    sql(database, f"UPDATE tokens SET {edit} WHERE name = 'ci'")
    column, expected, got = EDITS[edit]
    # A fingerprint is of the id too.
    found = [it for it in told(database) if it[2] != "hash"]
    assert found == [("tokens", "ci", column, expected, got)]
    with database.read() as connection:
        assert contradicted_tokens(connection) == 1


def test_a_token_whose_hash_was_replaced_is_found_and_the_log_does_not_have_the_hash(database: Database) -> None:
    issue(database, token())
    assert token().hash.hex() not in log(database)[-1].data
    sql(database, "UPDATE tokens SET hash = :hash", hash=bytes(32))
    other = token(hash=bytes(32))
    assert told(database) == [("tokens", "ci", "hash", fingerprint(token()), fingerprint(other))]


def test_an_invented_token_is_found(database: Database) -> None:
    issue(database, token())
    sql(
        database,
        "INSERT INTO tokens (name, id, hash, roles, issued_at, issued_by) "
        f"VALUES ('root', '{ID}', :hash, '[\"admin\"]', 1, 'me')",
        hash=bytes(32),
    )
    assert [str(it) for it in verify(database).findings] == [
        'tokens "root", column id: the token was never issued: the log has no event of it '
        f"(expected nothing, got {ID})"
    ]


def test_a_token_of_an_earlier_program_is_compared_but_for_its_hash_and_that_is_reported(
    database: Database,
) -> None:
    issue(database, token())
    _as_an_earlier_program_wrote(database)
    assert verify(database).ok
    assert verify(database).gaps[0].startswith("1 token (ci): issued by an earlier program")
    sql(database, "UPDATE tokens SET roles = '[\"admin\"]'")
    assert [it[2] for it in told(database)] == ["roles"]


def _as_an_earlier_program_wrote(database: Database) -> None:
    """The only event of the log, without the fingerprint."""
    (event,) = log(database)
    start, _, rest = event.data.partition('"fingerprint":')
    rewrite(database, [event._replace(data=start + rest.partition(",")[2])])


def test_a_token_whose_events_were_archived_is_compared_with_the_base(database: Database, tmp_path: Path) -> None:
    issue(database, token())
    issue(database, token("gone"))
    revoke(database, "gone", actor="cli/token/ada", now=NOW + 1)
    last, out = ended(database) - 1, tmp_path / "old.jsonl"
    put(database, last, out)
    assert (verify(database).ok, verify(database).gaps) == (True, [])
    sql(database, "UPDATE tokens SET revoked_at = NULL")
    assert [it[:3] for it in told(database)] == [("tokens", "gone", "revoked_at")]
    with database.read() as connection:
        assert contradicted_tokens(connection) == 1


def test_a_base_of_an_earlier_program_says_nothing_of_tokens_and_its_archives_do(
    database: Database, tmp_path: Path
) -> None:
    issue(database, token())
    last, out = ended(database) - 1, tmp_path / "old.jsonl"
    put(database, last, out)
    sql(database, "UPDATE snapshots SET state = :state WHERE stream = 'token/ci'", state='{"version":1}')
    with database.read() as connection:
        total = sum_of(BaseRow.mark(row) for row in base_rows(connection, last))
    sql(database, "UPDATE checkpoints SET hash = :hash WHERE name = 'base-states'", hash=total)
    report = verify(database)
    assert (report.findings, len(report.gaps)) == ([], 1)
    assert "archived by an earlier program" in report.gaps[0]
    proven = verify(database, archives=[lines_of_file(out)])
    assert (proven.findings, proven.gaps) == ([], [])
    sql(database, "UPDATE tokens SET roles = '[\"admin\"]'")
    assert [it.column for it in verify(database, archives=[lines_of_file(out)]).findings] == ["roles"]


def test_a_lease_that_was_put_back_to_an_epoch_before_it_was_freed_is_found(database: Database) -> None:
    first = acquire(database, name="controller", holder="a", now=NOW, ttl=SECOND)
    assert first is not None
    free(database, "controller", actor="cli/leases-free/ada", now=NOW)
    assert acquire(database, name="controller", holder="b", now=NOW, ttl=SECOND)
    assert verify(database).ok
    sql(database, "UPDATE leases SET epoch = 1, holder = 'a'")
    assert told(database) == [("leases", "controller", "epoch", 2, 1)]


def test_a_lease_whose_row_is_lost_goes_on_with_the_epoch_that_the_log_has(database: Database) -> None:
    acquire(database, name="controller", holder="a", now=NOW, ttl=SECOND)
    free(database, "controller", actor="cli/leases-free/ada", now=NOW)
    sql(database, "DELETE FROM leases")
    again = acquire(database, name="controller", holder="b", now=NOW, ttl=SECOND)
    assert again is not None
    assert again.epoch == 2
    assert verify(database).ok


def _reserved(id_: str, key: str | None) -> NewEvent:
    asked = {} if key is None else {"key": key}
    data = {
        "pod": "shop/db", "pod_uid": "u", "node": "n1", "decided_at": 0, "legs": [], "reserved": True, **asked,
    }  # fmt: skip
    return NewEvent(stream=f"binding/{id_}", type="BindingPlanned", data=data, binding=id_)


def _keep(database: Database, key: str, result: str, *, at: int = NOW) -> None:
    insert = "INSERT INTO commands (key, position, at, result) VALUES (:key, 1, :at, :result)"
    sql(database, insert, key=key, result=result, at=at)


RESULTS: list[tuple[str, str, str | None]] = [
    ("reserve/shop/k1", '{"binding":"r1","pod":"shop/db"}', None),
    ("reserve/shop/other", '{"binding":"r1","pod":"shop/db"}', "key"),
    ("reserve/bank/k1", '{"binding":"r1","pod":"shop/db"}', "key"),
    ("reserve/shop/k1", '{"binding":"r1","pod":"shop/web"}', "result"),
    ("reserve/shop/k1", '{"binding":"r9","pod":"shop/db"}', "result"),
    ("reserve/shop/k1", '{"binding":"b1","pod":"db/app-b1"}', "result"),
    ("reserve/shop/k1", "[", "result"),
]


@pytest.mark.parametrize(("key", "result", "wrong"), RESULTS)
def test_an_idempotency_result_is_what_the_log_says_for_its_key(
    database: Database, key: str, result: str, wrong: str | None
) -> None:
    fill(database)
    must(database, append(_reserved("r1", "k1")), now=NOW + 9 * SECOND)
    _keep(database, key, result, at=NOW + 9 * SECOND)
    assert [it[:3] for it in told(database)] == ([] if wrong is None else [("commands", key, wrong)])
    assert verify(database).gaps == []


def test_a_reservation_that_was_asked_for_without_a_key_has_no_result(database: Database) -> None:
    must(database, append(_reserved("r1", "")))
    _keep(database, "reserve/shop/", '{"binding":"r1","pod":"shop/db"}')
    assert [it[2] for it in told(database)] == ["key"]


def test_a_result_whose_key_is_not_in_the_log_is_reported_as_not_proven(database: Database) -> None:
    must(database, append(_reserved("r1", None)))
    _keep(database, "reserve/shop/k1", '{"binding":"r1","pod":"shop/db"}')
    _keep(database, "mine", "{}")
    report = verify(database)
    assert (report.ok, report.gaps[0][:28]) == (True, "2 idempotency results of com")


def _moves(*states: str) -> Callable[[Database], None]:
    def move(database: Database) -> None:
        for state in states:
            data = {"leg": 0, "state": state, "open": True}
            must(database, append(NewEvent(stream="binding/b2", type="LegMoved", data=data, binding="b2")))

    return move


EFFECTS: list[tuple[Callable[[Database], None], str, str, str | None]] = [
    (_moves(), "b2/0/prebind", "prebind", "the log has leg 0 assumed"),
    (_moves("written"), "b2/0/prebind", "prebind", None),
    (_moves("written"), "b2/0/release", "release", "the log has leg 0 written"),
    (_moves("written", "releasing"), "b2/0/release", "release", "the log has leg 0 releasing"),
    (_moves("written", "releasing", "released"), "b2/0/release", "release", None),
    (_moves("written"), "b2/pod/bind_pod", "bind_pod", "the log has the binding prebinding"),
    (_moves("written"), "b2/7/prebind", "prebind", "the log has a binding of 1 legs, and none with number 7"),
]


@pytest.mark.parametrize(("before", "key", "kind", "wrong"), EFFECTS)
def test_a_done_effect_has_its_outcome_in_the_log(
    database: Database, before: Callable[[Database], None], key: str, kind: str, wrong: str | None
) -> None:
    fill(database)
    before(database)
    sql(database, "DELETE FROM effects", DONE.format(key=key, kind=kind, binding="b2"))
    problem = f"the effect is done and the log has no outcome of it: {wrong}"
    found: list[Finding] = verify(database).findings
    assert [(it.table, it.key, it.problem) for it in found] == (
        [] if wrong is None else [("effects_done", key, problem)]
    )


def test_a_done_effect_is_of_the_kind_that_its_key_says(database: Database) -> None:
    fill(database)
    sql(database, "DELETE FROM effects", DONE.format(key="b1/0/prebind", kind="release", binding="b1"))
    assert [it[:4] for it in told(database)] == [("effects_done", "b1/0/prebind", "kind", "prebind")]


def test_rows_that_expired_are_no_finding(database: Database) -> None:
    ended(database)
    sql(database, "DELETE FROM effects_done", "DELETE FROM commands", "DELETE FROM tokens")
    assert verify(database).ok
