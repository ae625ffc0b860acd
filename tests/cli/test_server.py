"""`--server`: every verb says over HTTP what it says where the store is, with the same exit code."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.conftest import Ran, Run
from tests.cli.two_ways import TwoWays
from tests.support.fresh_stores import unsynced_store
from tests.support.serving import Served, served
from tests.support.settled_server import settled
from volsched.log.reads.tail import read_head


@dataclass(frozen=True)
class Both(TwoWays):
    """One store, reached in both ways."""

    position: int
    """Where `db` was bound."""
    last: int
    """Where the story ends, with a binding that is under way."""

    def same(self, *words: str, stdin: bytes | None = None) -> Ran:
        """What is printed, if it is the same; what is told beside it may be worded for where it comes from."""
        words = tuple(it.format(then=self.position, last=self.last) for it in words)
        here, there = self.here(*words, stdin=stdin), self.there(*words, stdin=stdin)
        shown = str if "--as-of" in words else settled
        assert (there.code, shown(there.out)) == (here.code, shown(here.out)), there.err
        assert bool(there.err) == bool(here.err), (here.err, there.err)
        return there


@pytest.fixture(scope="module")
def store(told_store: tuple[str, int]) -> Iterator[tuple[str, Served, int, int]]:
    path, position = told_store
    with unsynced_store(path) as database:
        with database.read() as connection:
            last = read_head(connection).position
        with served(database) as running:
            yield path, running, position, last


@pytest.fixture
def both(store: tuple[str, Served, int, int], run: Run) -> Both:
    db, api, position, last = store
    return Both(db, api, run, position, last)


READS = """
get pv
get pods -A
get pods -n nowhere
get pv disk-0 -o yaml
get pv disk-0 disk-1 -o json
get nodes,pv,pvc,sc,pods -A
get pods -A -o wide
get pv -o csv
get pvc -A -o name
get pv -l tier=slow
get pv -l tier=none
get pv -l tier=
get pv -l tier=(
get bindings,attempts -A
get attempts -n shop -o json
get bindings -o csv
get pv --as-of {then} -o wide
get pods -A --as-of {then} -o json
get pods,pvc,pv -A -o wide --as-of {last}
get pods,pvc,pv,bindings,attempts -A -o csv --as-of {last}
get nodes -l tier=fast --as-of {then}
get bindings --as-of {then} -o wide
get pv disk-1 --as-of {then}
get pv disk-0 --as-of 99999
get pv --as-of yesterday
get pv --as-of 2999-01-01
get pv disk-9
get pod waiting
get node node-0
get binding none
get nonsense
get pv -n a -A
describe pod db
describe pod shop/waiting
describe pv disk-0 -o json
describe pv disk-0 disk-1
describe pvc data --as-of {then}
describe node node-0
describe node node-0 --as-of {then}
describe pod nobody
""".strip().splitlines()


@pytest.mark.parametrize("words", READS)
def test_looking_is_the_same(both: Both, words: str) -> None:
    both.same(*words.split())


ASKS = """
explain pod db
explain pod shop/waiting
explain pod waiting -n shop --node node-1 -o json
explain pod nobody
simulate --drain node-1
simulate --lose-zone nowhere
simulate --delete pv/disk-1 -o json
simulate --delete nonsense/x
history pv disk-0 --until {then}
history pod db --until {then} -o json
history pod db --limit 2
history pv disk-0 --after nonsense
history pv disk-9
history pv disk-0 --until 99999
history pv disk-0 --since later
history node node-0 -o csv --as-of {then}
history binding none
diff --from 3 --to {then}
diff pv --from 3 --to {then} -o json
diff --from {then} --to 3
diff bindings --from 3
audit volume disk-0 --at {then}
audit volume disk-0 --at 10 -o json
audit volume disk-9
audit claims-of disk-0
audit claims-of disk-9
audit who pv disk-0 --limit 1 -o json
audit who pod nobody
audit attempts shop/waiting -o csv
audit attempts nobody
audit node node-0
audit node node-9
audit cause 12
audit cause 99999
audit cause --binding none
audit why none
audit why shop/waiting
audit why shop/waiting --as-of {then}
audit why waiting -n shop --node node-1 -o json
audit why shop/nobody
explain pod db --as-of {then}
explain pod shop/waiting --as-of {last} -o json
explain pod shop/waiting --as-of 1
explain pod shop/waiting --as-of soon
audit rollbacks
audit in-flight --as-of {then}
audit in-flight --older-than soon
audit latency -o json
audit interventions
audit orphans
orphans
orphans -o json
effects list
effects list -o json
effects list --queue nonsense
effects retry none
effects cancel none
verify
verify -o json
reservations list
reservations confirm none
reservations cancel none
""".strip().splitlines()


def test_an_export_over_http_is_the_same_and_can_be_verified(both: Both, tmp_path: Path) -> None:
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    assert both.here("export", str(here), "--to", str(both.position)).code == 0
    assert both.there("audit", "export", str(there), "--until", str(both.position)).code == 0
    assert there.read_text().splitlines()[1:] == here.read_text().splitlines()[1:]
    assert both.run("import-log", "--check", str(there)).out.startswith(f"{both.position} events verified")
    assert both.there("export", "-", "-o", "csv").code == 2


@pytest.mark.parametrize("words", ASKS)
def test_asking_is_the_same(both: Both, words: str) -> None:
    both.same(*words.split())
