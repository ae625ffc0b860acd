"""Every service restarted under load, and upgraded by it: nothing is lost, and nothing done twice."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from tests.log.next_version import NEXT, write_next_revision
from tests.stack.composed import ROOT
from tests.stack.local_stacks import local_stack
from tests.stack.work import create
from tests.support.clusters import node, pod
from volsched.lab.stack.handle import Stack
from volsched.lab.stack.load import Load, LoadClient, lost_pods, prepare_cluster, restart_under_load
from volsched.lab.stack.services import environment, write_definition
from volsched.log.database import Database, open_database
from volsched.log.integrity.verify import verify
from volsched.log.revisions import newest
from volsched.log.store import revision_of
from volsched.runtime.clock import system_clock

PODS_PER_SECOND = 50
VOLUMES = 600
ALL = ("worker", "scheduler", "controller", "api", "redis", "postgres")


def next_version(directory: Path) -> Path:
    """A checkout of the program whose tables are one revision further: it has expanded them."""
    for name in ("volsched", "workers", "alembic"):
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    write_next_revision(directory / "alembic", after=newest())
    return directory


def upgrade(stack: Stack, checkout: Path) -> None:
    """As an operator does it: migrate with the new program, then restart every service, which starts with it."""
    definition = stack.definition
    renewed = tuple(
        replace(it, environment={**it.environment, "PYTHONPATH": str(checkout)}) for it in definition.services
    )
    write_definition(stack.directory / "stack.json", replace(definition, services=renewed))
    migrate = stack.definition.service("migrate")
    given = environment(migrate, number=1, count=1, path=definition.path)
    done = subprocess.run(migrate.command, env=given, cwd=stack.directory, capture_output=True, text=True)
    assert done.stdout.startswith(f"the store is now at revision {NEXT}\n"), done.stdout + done.stderr


def test_a_pod_whose_answer_got_lost_does_not_make_up_for_one_that_has_no_node(sqlite: Database) -> None:
    create(sqlite, [node("n"), {**pod("a"), "spec": {**pod("a")["spec"], "nodeName": "n"}}, pod("b")])
    # One was sent; the API took two, and had no time to say so.
    assert lost_pods(sqlite, 1) == 1
    # Three were taken, and one of them is not there any more.
    assert lost_pods(sqlite, 3) == 2


def test_an_upgrade_by_restarting_everything_under_load_loses_and_doubles_nothing(passable_path: Path) -> None:
    with local_stack(passable_path / "stack") as stack:
        database = open_database(stack.database_url)
        client = LoadClient(stack.urls["api"])
        prepare_cluster(client, nodes=4, volumes=VOLUMES)
        load = Load(client, PODS_PER_SECOND, most=VOLUMES)
        upgrade(stack, next_version(passable_path / "next"))
        with database.read() as connection:
            assert revision_of(connection) == NEXT
        # The old processes work on the new tables until each is restarted.
        outcome = restart_under_load(stack, database, load, ALL, clock=system_clock, least=100)
        client.close()
        assert (outcome.lost, outcome.doubled, outcome.broken) == (0, 0, ())
        assert set(outcome.restarts) == set(ALL)
        assert outcome.pods >= 100
        seen = stack.published()
        assert seen is not None
        assert {it.service: it.restarts for it in seen.instances} == {**dict.fromkeys(ALL, 1), "migrate": 0}
        assert verify(database).ok
        database.close()
