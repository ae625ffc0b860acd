"""Every question of the registry: a command, an operation and a call of the library, with one answer."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from typer.testing import CliRunner

from tests.support.serving import Served
from volsched import Engine
from volsched.api.access.allow_table import OURS, row_of
from volsched.api.questions.routes import OPERATIONS
from volsched.cli.app import app
from volsched.cli.question_client import request_of, route_for
from volsched.questions.registry import Question, every_question, model_of, question

MOMENTARY = frozenset({"ageSeconds", "renewedSecondsAgo"})
"""What the moment of asking decides."""
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("history", {"kind": "pv", "name": "n0-small"}),
    ("history", {"kind": "pods", "name": "db", "namespace": "default", "limit": 2}),
    ("diff", {"begin": "3", "end": "9", "kind": "pv"}),
    ("audit volume", {"name": "n0-small", "as_of": "20"}),
    ("audit claims-of", {"name": "n0-small"}),
    ("audit who", {"kind": "pv", "name": "n0-small", "limit": 1}),
    ("audit attempts", {"name": "big", "namespace": "default"}),
    ("audit why", {"name": "big"}),
    ("audit why", {"name": "big", "namespace": "default", "as_of": "30", "node": "n0"}),
    ("audit cause", {"position": "12"}),
    ("audit node", {"name": "n0", "since": "1"}),
    ("audit rollbacks", {}),
    ("audit in-flight", {"older_than": "1s"}),
    ("audit latency", {"bindings": 10}),
    ("audit interventions", {}),
    ("audit reads", {}),
    ("audit orphans", {"older_than": "0s"}),
    ("verify", {}),
    ("leases list", {}),
    ("explain pod", {"name": "big", "namespace": "default"}),
    ("explain pod", {"name": "big", "namespace": "default", "as_of": "30"}),
    ("simulate", {"drain": ["n0"]}),
]


def words_of(wanted: Question, parameters: dict[str, Any]) -> list[str]:
    """As a person would write it."""
    words = wanted.name.split()
    for name, (_, spelling) in model_of(wanted).spellings().items():
        given = parameters.get(name)
        for value in given if isinstance(given, list) else [] if given is None else [given]:
            words += [spelling.flags[0], str(value)] if spelling.flags else [str(value)]
    return words


def lasting(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {name: lasting(it) for name, it in answer.items() if name not in MOMENTARY}
    return [lasting(it) for it in answer] if isinstance(answer, list) else answer


def test_all_of_them_are_asked_here() -> None:
    assert {name for name, _ in ASKED} == {it.name for it in every_question()}


@pytest.mark.parametrize(
    ("name", "parameters"), ASKED, ids=[f"{it[0]} {number}" for number, it in enumerate(ASKED)]
)
def test_a_question_has_one_answer(own_shared: Served, name: str, parameters: dict[str, Any]) -> None:
    wanted = question(name)
    checked = model_of(wanted)(**parameters)
    route = route_for(wanted, checked)
    path, query, body = request_of(route, checked)
    sent = urlencode({called: it for called, it in query.items() if it is not None})
    # First: what is asked over HTTP becomes part of the history.
    served = own_shared.http.request(route.method, f"{path}?{sent}", json=body)
    assert served.status_code == 200, served.text
    url = str(own_shared.database.engine.url)
    printed = CliRunner().invoke(app, [*words_of(wanted, parameters), "-o", "json", "--db", url])
    assert printed.exit_code in (0, 4), printed.output
    called = Engine(own_shared.database).ask(name, **parameters)
    assert lasting(served.json()) == lasting(json.loads(printed.stdout)) == lasting(json.loads(json.dumps(called)))


@pytest.mark.parametrize("wanted", every_question(), ids=lambda it: it.name)
def test_every_route_is_served_in_its_turn_to_those_whom_its_row_names(wanted: Question) -> None:
    for route in wanted.routes:
        for path in route.paths:
            (operation,) = [it for it in OPERATIONS if (it.method, it.path) == (route.method, path)]
            row = row_of(OURS, operation.resource, None)
            assert row is not None
            assert (operation.turn, row.resource) == (wanted.turn, wanted.access)


def test_what_is_no_question_is_refused_by_name(own_shared: Served) -> None:
    with pytest.raises(LookupError, match="audit rollbacks"):
        Engine(own_shared.database).ask("audit nonsense")
    with pytest.raises(ValueError, match="colour"):
        Engine(own_shared.database).ask("audit rollbacks", colour="red")
