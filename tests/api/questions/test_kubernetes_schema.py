"""The Kubernetes part under requests made from its own documents: whatever is sent, the server does not fail."""

from typing import Any

import schemathesis
from schemathesis.checks import not_a_server_error

from tests.support.schema_examples import schema_examples
from tests.support.serving import Served
from volsched.api.kubernetes.discovery import document, root
from volsched.api.questions.openapi import PLACE

SHALLOW = {
    "type": "object",
    "properties": {
        "apiVersion": {"type": "string", "enum": ["v1", "storage.k8s.io/v1", "apps/v1"]},
        "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}, "labels": {"type": "object"}}},
        "spec": {"type": "object"},
        "status": {"type": "object"},
    },
}


def _whole() -> dict[str, Any]:
    """All groups as one document. What is inside of objects is for `test_fuzz`: here it would take minutes."""
    documents = [found for it in root()["paths"] if it != PLACE and (found := document(it)) is not None]
    paths = {path: told for it in documents for path, told in it["paths"].items()}
    schemas = {name: SHALLOW for it in documents for name in it["components"]["schemas"]}
    return {**documents[0], "paths": paths, "components": {"schemas": schemas}}


schema = schemathesis.openapi.from_dict(_whole())


@schema.parametrize()
@schema_examples(2)
def test_the_kubernetes_part_never_fails(case: schemathesis.Case[Any], own_shared: Served) -> None:
    case.call_and_validate(base_url=own_shared.url, checks=[not_a_server_error])
