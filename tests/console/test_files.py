"""The console's files over HTTP: where they come from, how long they are kept, what is said without them."""

import asyncio
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from tests.support.serving import served
from volsched.console.files import console_files
from volsched.log.database import Database

SCRIPT = "console.log('a script that is long enough to be packed')\n" * 40


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "static" / "assets").mkdir(parents=True)
    (tmp_path / "static" / "index.html").write_text("<!doctype html><title>volsched</title>")
    (tmp_path / "static" / "assets" / "index-1a2b.js").write_text(SCRIPT)
    (tmp_path / "secret").write_text("not for readers")
    return tmp_path / "static"


def asked(static: Path, path: str, **headers: str) -> httpx.Response:
    app = Starlette(routes=[Route("/ui/{place:path}", console_files(static))])

    async def answer() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            return await http.get(path, headers=headers)

    return asyncio.run(answer())


def test_a_page_may_load_and_ask_nothing_but_this_server(built: Path) -> None:
    answer = asked(built, "/ui/")
    assert answer.status_code == 200
    policy = dict(it.strip().split(" ", 1) for it in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert {policy[it] for it in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_files_named_by_their_contents_are_kept_for_ever_and_the_page_is_not(
    built: Path,
) -> None:
    script, page = asked(built, "/ui/assets/index-1a2b.js"), asked(built, "/ui/index.html")
    assert "immutable" in script.headers["cache-control"]
    assert page.headers["cache-control"] == "no-cache"
    assert (script.text, script.headers["content-encoding"]) == (SCRIPT, "gzip")
    plain = asked(built, "/ui/assets/index-1a2b.js", **{"accept-encoding": "identity"})
    assert (plain.text, plain.headers.get("content-encoding")) == (SCRIPT, None)


@pytest.mark.parametrize(
    "path", ["/ui/../secret", "/ui/..%2fsecret", "/ui/%2e%2e/secret", "/ui/assets", "/ui/nothing.js"]
)
def test_what_is_no_file_of_the_console_is_not_given(built: Path, path: str) -> None:
    answer = asked(built, f"/ui/{path}")
    assert answer.status_code == 404
    assert "not for readers" not in answer.text


def test_a_checkout_without_them_says_how_to_build_them(tmp_path: Path) -> None:
    answer = asked(tmp_path / "static", "/ui/")
    assert answer.status_code == 404
    assert "make console" in answer.text


def test_a_browser_is_led_from_the_root_to_the_console_and_a_program_gets_its_address(sqlite: Database) -> None:
    with served(sqlite) as running:
        person = running.http.get("/", headers={"accept": "text/html,*/*"})
        assert (person.status_code, person.headers["location"]) == (307, "/ui/")
        assert "/ui/" in running.http.get("/").json()["paths"]
