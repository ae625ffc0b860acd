"""Every row of the controller's tables, and how a test says which it covers."""

from collections.abc import Callable
from typing import Any, TypeVar

ROWS = (
    *("9.2 no provisioner", "9.2 migrated provisioner", "9.2 other provisioner"),
    *(f"9.3 U1 step {number}" for number in range(1, 8)),
    *("9.3 pending clears the status", "9.3 terminated pods"),
    *("9.3 U2 missing", "9.3 U2 free and unfit", "9.3 U2 free and fit", "9.3 U2 ours"),
    *("9.3 U2 taken, named by the user", "9.3 U2 taken, named by the controller"),
    *("9.4 deleted", "9.4 size", "9.4 class", "9.4 attributes class", "9.4 volume mode", "9.4 access modes"),
    *("9.5 no volume name", "9.5 volume missing", "9.5 no claimRef", "9.5 same uid", "9.5 other uid"),
    *(f"9.6 V{number}" for number in range(11)),
    *(f"9.7 write {number}" for number in range(1, 5)),
    *(f"9.7 crash after {number}" for number in range(1, 4)),
    *("9.7 capacity", "9.7 attributes class", "9.7 no capacity"),
    *("9.7 link by search", "9.7 link by volume", "9.7 link by claim", "9.7 link by both"),
    *("9.7 link by external provisioner", "9.7 link by plugin"),
    *("9.8 by controller", "9.8 by user"),
    *("9.9 disabled", "9.9 class missing", "9.9 unknown in-tree", "9.9 migrated", "9.9 external"),
    *("9.9 external not saved", "9.9 data source", "9.9 internal not saved", "9.9 volume exists"),
    *("9.9 mount options", "9.9 node missing", "9.9 provisioning fails", "9.9 success", "9.9 already exists"),
    *("9.9 cannot save", "9.9 cannot clean up"),
    *("9.10 migrated", "9.10 retain", "9.10 unknown policy"),
    *("9.10 delete, no deleter", "9.10 delete, external", "9.10 delete, not released", "9.10 delete"),
    *("9.10 delete, in use", "9.10 delete fails"),
    *("9.10 recycle, used", "9.10 recycle, no recycler", "9.10 recycle fails", "9.10 recycle"),
    *("9.10 finalizer added", "9.10 finalizer removed", "9.10 external finalizer removed"),
    *("9.10 migrated finalizer", "9.10 foreign finalizers", "9.10 refused while deleted"),
    *("9.11 volume deleted", "9.11 claim deleted", "9.11 claim protection", "9.11 volume protection"),
    *("10.1 clean", "10.1 left dirty", "10.1 eligibility"),
    *("10.1 deleted", "10.1 lost", "10.1 nothing to undo", "10.1 refused"),
    *(f"10.1 step {number}" for number in range(1, 6)),
)

Test = TypeVar("Test", bound=Callable[..., Any])


def row(*names: str) -> Callable[[Test], Test]:
    """The decorated test fails if one of these rows is flipped."""
    unknown = set(names) - set(ROWS)
    assert not unknown, unknown

    def covered(test: Test) -> Test:
        test.rows = names  # type: ignore[attr-defined]
        return test

    return covered
