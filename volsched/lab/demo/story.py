"""The demo as a whole: its scenes in order, and the store that they play on."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from volsched.lab.demo.failure_scenes import killed, stolen
from volsched.lab.demo.placement_scenes import cluster, contended, three_claims
from volsched.lab.demo.proof_scenes import audited, verified
from volsched.lab.demo.stage import DemoScene, Stage
from volsched.log.store import migrate_store, open_store

SCENES = (
    DemoScene("A cluster with local disks and zonal storage", cluster),
    DemoScene("A pod with three claims is placed", three_claims),
    DemoScene("A pod that comes too late is explained", contended),
    DemoScene("A worker is killed in the middle, and the work goes on", killed),
    DemoScene("A volume is stolen in the middle, and the transaction is undone", stolen),
    DemoScene("Who did what: the history of that transaction", audited),
    DemoScene("Is it all true?", verified),
)


@contextmanager
def stage_in(directory: Path) -> Iterator[Stage]:
    """A new store in a directory."""
    url = f"sqlite:///{directory / 'demo.db'}"
    migrate_store(url)
    database = open_store(url)
    try:
        yield Stage(url, database)
    finally:
        database.close()


@contextmanager
def directory_for(*, keep: bool) -> Iterator[Path]:
    """Where the store is; whatever ends the demo, it is gone afterwards unless somebody wants to keep it."""
    if keep:
        yield Path(tempfile.mkdtemp(prefix="volsched-demo-"))
        return
    with tempfile.TemporaryDirectory(prefix="volsched-demo-") as directory:
        yield Path(directory)
