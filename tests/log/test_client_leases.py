"""Leases of clients: a write counts only on the version that its client has read, on both engines."""

from concurrent.futures import ThreadPoolExecutor

from volsched.log.database import Database
from volsched.log.leases import (
    client_lease,
    client_leases,
    make_client_lease,
    remove_client_lease,
    replace_client_lease,
)

KEY = "kube-system/kube-scheduler"


def held_by(holder: str) -> dict[str, object]:
    return {"metadata": {"name": "kube-scheduler"}, "spec": {"holderIdentity": holder}}


def test_a_lease_goes_from_version_to_version(database: Database) -> None:
    assert client_lease(database, KEY) is None
    assert make_client_lease(database, KEY, held_by("a"), rv=10)
    assert not make_client_lease(database, KEY, held_by("b"), rv=11)
    assert replace_client_lease(database, KEY, held_by("b"), expected=10, rv=12)
    assert not replace_client_lease(database, KEY, held_by("c"), expected=10, rv=13)
    held = client_lease(database, KEY)
    assert held is not None
    assert (held.rv, held.manifest) == (12, held_by("b"))
    assert make_client_lease(database, "kube-system-2/other", held_by("a"), rv=14)
    assert [key for key, _ in client_leases(database, "kube-system")] == [KEY]
    assert [key for key, _ in client_leases(database, None)] == ["kube-system-2/other", KEY]
    assert not remove_client_lease(database, KEY, expected=10)
    assert remove_client_lease(database, KEY, expected=12)
    assert client_lease(database, KEY) is None


def test_of_many_that_saw_the_same_one_gets_it(database: Database) -> None:
    make_client_lease(database, KEY, held_by("nobody"), rv=1)
    with ThreadPoolExecutor(8) as pool:
        won = list(
            pool.map(lambda it: replace_client_lease(database, KEY, held_by(str(it)), expected=1, rv=2), range(8))
        )
    assert sorted(won) == [False] * 7 + [True]
    held = client_lease(database, KEY)
    assert held is not None
    assert held.manifest == held_by(str(won.index(True)))
