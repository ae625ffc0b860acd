"""Requests made from the OpenAPI document: nothing is answered with 500, and every answer is what its schema says.

`VOLSCHED_SCHEMA_EXAMPLES` asks for more of them; whatever the number, the same are made every time.
"""

from typing import Any

import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.patience import HANG_SECONDS
from tests.support.schema_examples import schema_examples
from tests.support.serving import Served
from volsched.api.questions.openapi import document

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
BOUNDED = schema_examples(8)
THERE = {
    "kind": ("pv", "pods", "bindings", "claims", "persistentvolumeclaims"),
    "namespace": ("default",),
    "name": ("db", "n0-small", "n0", "small", "web"),
}
"""Names of things that are there, so that not everything is simply not found."""


schema = schemathesis.openapi.from_dict(document())


@schema.hook
def map_path_parameters(_context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    return {name: _known(name, value) for name, value in (path_parameters or {}).items()}


def _known(name: str, value: Any) -> Any:
    """Mostly something that is there; chosen by what was made, so that it is the same every time."""
    number = len(str(value)) + sum(map(ord, str(value)))
    return THERE[name][number % len(THERE[name])] if name in THERE and number % 4 else value


@schema.parametrize()
@BOUNDED
def test_our_own_endpoints_answer_as_their_document_says(case: schemathesis.Case[Any], own_shared: Served) -> None:
    case.call_and_validate(base_url=own_shared.url, checks=CHECKS, timeout=HANG_SECONDS)


def test_what_is_served_is_that_document(own_shared: Served) -> None:
    places = own_shared.http.get("/openapi/v3").json()["paths"]
    served = own_shared.http.get(places["apis/volsched.io/v1"]["serverRelativeURL"]).json()
    assert served == document()
