"""Every question of the registry: a command, an operation and a call of the library, with one answer."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from typer.testing import CliRunner

from tests.support.effect_work import effect, queue_up
from tests.support.serving import Served
from volsched import Engine
from volsched.api.access.authorization import OURS, row_of
from volsched.api.questions.routes import OPERATIONS
from volsched.cli.app import app
from volsched.cli.remote.server_client import request_of, route_for
from volsched.log.transaction import execute
from volsched.questions.registry import Question, every_question, model_of, question

BINDING, ATTEMPT, EFFECT, RESERVATION = "<binding>", "<attempt>", "<effect>", "<reservation>"
"""In the store they have names that are made with it."""
MOMENTARY = frozenset({"ageSeconds", "renewedSecondsAgo", "held"})
"""What the moment of asking decides; whether a lease counts as held, also for how long one has watched it."""
PRINTED_OTHERWISE = frozenset({"get", "effects list", "reservations list"})
"""Commands whose JSON has the same things in another form; tests/cli/test_server.py compares store and server."""
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("get", {"kind": "pv"}),
    ("get", {"kind": "pods", "namespace": "default", "as_of": "20"}),
    ("get object", {"kind": "pv", "name": "n0-small", "as_of": "20"}),
    ("describe", {"kind": "pods", "name": "db", "namespace": "default"}),
    ("describe", {"kind": "pv", "name": "n0-small", "as_of": "20"}),
    ("bindings", {"namespace": "default", "state": "committed", "pod": "db"}),
    ("binding", {"name": BINDING, "namespace": "default"}),
    ("binding steps", {"name": BINDING, "namespace": "default"}),
    ("attempts", {"limit": 1}),
    ("attempt", {"name": ATTEMPT, "namespace": "default"}),
    ("effects list", {"state": "parked"}),
    ("effect", {"name": EFFECT}),
    ("reservations list", {"namespace": "default"}),
    ("reservation", {"name": RESERVATION, "namespace": "default"}),
    ("export", {"since": "1", "limit": 5}),
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
    ("status", {}),
    ("audit in-flight", {"older_than": "1s"}),
    ("audit latency", {"bindings": 10}),
    ("audit interventions", {}),
    ("audit events", {"kind": "pv", "text": "n0", "limit": 3}),
    ("audit reads", {}),
    ("audit orphans", {"older_than": "0s"}),
    ("audit drift", {"limit": 5}),
    ("in-flight", {"older_than": "0s"}),
    ("audit handovers", {"limit": 5}),
    ("audit data", {"claims_in": "default"}),
    ("audit retained", {"limit": 5}),
    ("uses", {"kind": "pv", "name": "n0-small"}),
    ("verify", {}),
    ("leases list", {}),
    ("explain pod", {"name": "big", "namespace": "default"}),
    ("explain pod", {"name": "big", "namespace": "default", "as_of": "30"}),
    ("map", {}),
    ("map", {"namespace": "default", "as_of": "20", "by": "kubernetes.io/hostname"}),
    ("timeline", {"points": 10}),
    ("timeline", {"namespace": "default"}),
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
    if isinstance(answer, str) and answer.startswith('{"format"'):
        # An export begins with when it was made.
        return answer.partition("\n")[2]
    return [lasting(it) for it in answer] if isinstance(answer, list) else answer


@pytest.fixture(scope="module")
def names(own_shared: Served) -> dict[str, str]:
    """What stands for the names → the names; the work waits, for nobody does any."""
    (queued,) = execute(own_shared.database, [queue_up(effect("work/1"))], now=0)
    assert not isinstance(queued, Exception)
    engine = Engine(own_shared.database)
    (binding,), (attempt, *_) = engine.ask("bindings")["items"], engine.ask("attempts")["items"]
    held = own_shared.http.post(
        "/apis/volsched.io/v1/namespaces/default/reservations", json={"spec": {"pod": "web"}}
    )
    found = {BINDING: binding, ATTEMPT: attempt, RESERVATION: held.json()}
    return {EFFECT: "work.1"} | {stand_in: it["metadata"]["name"] for stand_in, it in found.items()}


def test_all_of_them_are_asked_here() -> None:
    assert {name for name, _ in ASKED} == {it.name for it in every_question()}


@pytest.mark.parametrize(
    ("name", "parameters"), ASKED, ids=[f"{it[0]} {number}" for number, it in enumerate(ASKED)]
)
def test_a_question_has_one_answer(
    own_shared: Served, names: dict[str, str], name: str, parameters: dict[str, Any]
) -> None:
    wanted = question(name)
    parameters = {
        it: names.get(value, value) if isinstance(value, str) else value for it, value in parameters.items()
    }
    checked = model_of(wanted)(**parameters)
    route = route_for(wanted, checked)
    path, query, body = request_of(route, checked)
    sent = urlencode({called: it for called, it in query.items() if it is not None})
    # First: what is asked over HTTP becomes part of the history.
    served = own_shared.http.request(route.method, f"{path}?{sent}", json=body)
    assert served.status_code == 200, served.text
    called = Engine(own_shared.database).ask(name, **parameters)
    assert lasting(served.json()) == lasting(json.loads(json.dumps(called)))
    if not wanted.verb or name in PRINTED_OTHERWISE:
        return
    url = str(own_shared.database.engine.url)
    printed = CliRunner().invoke(app, [*words_of(wanted, parameters), "-o", "json", "--db", url])
    assert printed.exit_code in (0, 4), printed.output
    assert lasting(served.json()) == lasting(json.loads(printed.stdout))


@pytest.mark.parametrize("wanted", every_question(), ids=lambda it: it.name)
def test_every_route_is_served_in_its_turn_to_those_whom_its_row_names(wanted: Question) -> None:
    for route in wanted.routes:
        for path in route.paths:
            (operation,) = [it for it in OPERATIONS if (it.method, it.path) == (route.method, path)]
            below = [it for it in path.removeprefix("/namespaces/{namespace}").strip("/").split("/")[2:] if it]
            row = row_of(OURS, operation.resource, "/".join(below) or None)
            assert row is not None
            assert (operation.turn, row.resource) == (wanted.turn, wanted.access)


def test_what_is_no_question_is_refused_by_name(own_shared: Served) -> None:
    with pytest.raises(LookupError, match="audit rollbacks"):
        Engine(own_shared.database).ask("audit nonsense")
    with pytest.raises(ValueError, match="colour"):
        Engine(own_shared.database).ask("audit rollbacks", colour="red")
