"""The console in a real browser, against a real `volsched up` with TLS and tokens, on a store with a past.

All stories are one test: they share a server and a browser, whose starts cost more than the stories.
"""

import json
import re
from pathlib import Path

from tests.api.access.secured import LONG, issue_token, write_issued
from tests.console.story import tell
from tests.support.browser import play
from tests.support.command_processes import line, started
from tools.npm import WEB
from volsched.api.access.callers import Role
from volsched.api.access.tls import make_authority
from volsched.log.database import open_database
from volsched.log.events.fold import BindingState
from volsched.log.reads.as_of import view_at_head

STORIES = Path(__file__).parent / "stories.mjs"


def test_the_stories_of_the_console_are_played_in_a_real_browser(tmp_path: Path) -> None:
    assert (WEB.parent / "static" / "index.html").is_file(), "the console is not built; run: make console"
    store = f"sqlite:///{tmp_path / 'store.db'}"
    tell(store)
    database = open_database(store)
    tokens = {
        "auditor": issue_token(database, "ada", Role.AUDITOR),
        "operator": issue_token(database, "otto", Role.OPERATOR),
        "viewer": issue_token(database, "vera", Role.VIEWER, namespaces=["bank"]),
    }
    with database.read() as connection:
        bindings = view_at_head(connection).every("binding")
        undone = next(id_ for id_, it in bindings if isinstance(it, BindingState) and it.state == "rolled-back")
    database.close()
    authority = make_authority(tmp_path / "authority")
    certificate, key = write_issued(tmp_path, authority.for_server(["127.0.0.1"], lasts=LONG), "server")
    secured = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with started("up", "--db", store, "--port", "0", "--log-level", "error", *secured) as server:
        told = line(server.stderr)
        found = re.search(r"https://[\d.:]+", told)
        assert found, told
        played = play(STORIES, url=found[0], undone=undone, **tokens)
    assert played.returncode == 0, played.stderr
    results = [json.loads(it) for it in played.stdout.splitlines()]
    assert len(results) == 19
    wrong = "\n\n".join(f"{it['story']}:\n{it['wrong']}" for it in results if it["wrong"] is not None)
    assert not wrong, wrong
