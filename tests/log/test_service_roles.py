"""A service's role in PostgreSQL: it does the work of its service, and cannot rewrite what happened."""

from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url, text
from typer.testing import CliRunner

from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.patience import HANG_SECONDS
from volsched.cli.app import app
from volsched.library import Engine
from volsched.log.database import Database, open_database
from volsched.log.errors import StoreError
from volsched.log.service_roles import SERVICES, grant_service_roles, role_of

PASSWORD = "it's-100%s:safe"
REWRITES = (
    "UPDATE events SET data = '{}'",
    "DELETE FROM events",
    "TRUNCATE events",
    "DELETE FROM log_head",
    "INSERT INTO tokens SELECT * FROM tokens",
    "DELETE FROM tokens",
    "ALTER TABLE events ADD COLUMN x int",
    "CREATE TABLE mine (x int)",
    "UPDATE alembic_version SET version_num = '0001'",
)
on_postgres = pytest.mark.parametrize("url", ["postgres"], indirect=True)


def url_of(url: str, service: str) -> str:
    return make_url(url).set(username=role_of(service), password=PASSWORD).render_as_string(hide_password=False)


@pytest.fixture
def granted(database: Database) -> Database:
    grant_service_roles(database, dict.fromkeys(SERVICES, PASSWORD))
    return database


@on_postgres
@pytest.mark.usefixtures("granted")
def test_each_service_can_do_all_of_the_work(url: str) -> None:
    """Placing, binding, the PV controller: all of it in one process, under each service's role in turn."""
    for service in SERVICES:
        with closing(Engine.open(url_of(url, service))) as engine:
            engine.apply([
                LOCAL, node(f"node-{service}"), volume(f"pv-{service}", "1Gi", f"node-{service}"),
                claim(f"c-{service}", "1Gi"), pod(f"p-{service}", f"c-{service}"),
            ])  # fmt: skip
            assert engine.run_until_idle(timeout=HANG_SECONDS)
            placed = engine.get("pod", f"default/p-{service}")
            assert placed is not None
            assert placed["spec"]["nodeName"] == f"node-{service}"


@on_postgres
@pytest.mark.usefixtures("granted")
def test_no_service_can_rewrite_history(url: str) -> None:
    for service in SERVICES:
        with closing(open_database(url_of(url, service))) as theirs:
            for statement in REWRITES:
                with pytest.raises(StoreError, match="lacks the right"), theirs.write() as connection:
                    connection.execute(text(statement))


@on_postgres
@pytest.mark.usefixtures("granted")
def test_only_the_api_reads_tokens(url: str) -> None:
    for service in SERVICES:
        with closing(open_database(url_of(url, service))) as theirs:
            if service == "api":
                with theirs.read() as connection:
                    assert connection.execute(text("SELECT count(*) FROM tokens")).scalar() == 0
                continue
            with pytest.raises(StoreError, match="lacks the right"), theirs.read() as connection:
                connection.execute(text("SELECT count(*) FROM tokens"))


@on_postgres
def test_a_password_can_be_changed_by_migrating_again(url: str, tmp_path: Path) -> None:
    file = tmp_path / "roles"
    for password in ("before", PASSWORD):
        file.write_text(f"worker {password}\n\n")
        ran = CliRunner().invoke(app, ["migrate", "--db", url, "--roles", str(file)])
        assert ran.exit_code == 0, ran.output
        assert "role volsched_worker has the rights of the worker" in ran.output
    with closing(open_database(url_of(url, "worker"))) as theirs, theirs.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM events")).scalar() == 0


def test_a_store_without_roles_says_so(sqlite: Database) -> None:
    with pytest.raises(StoreError, match="leave --roles out"):
        grant_service_roles(sqlite, {"api": PASSWORD})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("api secret more\n", "line 1: write a service and its password"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_its_secrets(
    tmp_path: Path, content: str | None, told: str
) -> None:
    file = tmp_path / "roles"
    if content is not None:
        file.write_text(content)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    ran = CliRunner().invoke(app, ["migrate", "--db", url, "--roles", str(file)], env={"COLUMNS": "200"})
    assert ran.exit_code != 0
    assert told in ran.output
    assert "secret" not in ran.output.replace("secret_files", "")
    assert not (tmp_path / "store.db").exists()


@on_postgres
def test_a_service_that_does_not_exist_gets_no_role(database: Database) -> None:
    with pytest.raises(StoreError, match='no service "console"'):
        grant_service_roles(database, {"console": PASSWORD})
