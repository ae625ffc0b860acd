"""Long questions in a process of their own: a budget, an end, and nothing left behind."""

import os
from pathlib import Path

from tests.support.clusters import node, pod
from tests.support.patience import wait_until
from tests.support.serving import Served, served
from volsched.api.limits import Limits
from volsched.log.database import Database

EXPLAIN = "/apis/volsched.io/v1/namespaces/default/explain/p"


def children() -> set[int]:
    """Processes of ours that answer questions."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            words = (path.parent / "cmdline").read_text()
        except OSError:
            continue
        if parent == os.getpid() and "side_process" in words:
            found.add(int(path.parent.name))
    return found


def given(api: Served) -> None:
    api.create(node("n"), pod("p"))


def test_a_process_is_kept_for_the_next_question_and_ends_with_the_server(sqlite: Database) -> None:
    before = children()
    with served(sqlite) as api:
        given(api)
        assert api.http.get(EXPLAIN).json()["pod"] == "default/p"
        made = children() - before
        assert len(made) == 1
        assert api.http.get(EXPLAIN.replace("/p", "/none")).status_code == 404
        assert api.http.get(EXPLAIN).status_code == 200
        assert children() - before == made
    assert children() == before


def test_a_question_that_takes_longer_than_it_may_is_ended(sqlite: Database) -> None:
    before = children()
    # Not even its first statement is done as fast as that.
    with served(sqlite, limits=Limits(hypothesis_seconds=1e-6)) as api:
        given(api)
        late = api.http.get(EXPLAIN)
        assert (late.status_code, late.json()["reason"]) == (504, "Timeout")
        assert children() == before
        # Verifications have a budget of their own.
        assert api.http.get("/apis/volsched.io/v1/verify").json()["ok"] is True


def test_a_process_that_dies_is_reported_and_replaced(sqlite: Database) -> None:
    before = children()
    with served(sqlite) as api:
        given(api)
        assert api.http.get(EXPLAIN).status_code == 200
        (made,) = children() - before
        os.kill(made, 9)
        # Nobody is at the other end of its pipes any more.
        wait_until(lambda: Path(f"/proc/{made}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        lost = api.http.get(EXPLAIN)
        assert lost.status_code == 503
        assert "retry-after" in lost.headers
        assert api.http.get(EXPLAIN).status_code == 200
