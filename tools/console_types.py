"""Print the part of our OpenAPI document that the console's types are generated from.

    make types

writes `volsched/console/web/src/api-types.ts` with it; tests/console/test_sources.py compares the two.
"""

import json
import sys
from typing import Any

from volsched.api.questions.openapi import TYPED_ANSWERS, document

REFERENCE = "#/components/schemas/"


def console_schemas() -> dict[str, Any]:
    """The schemas of the typed answers, with all schemas that they refer to."""
    schemas = document()["components"]["schemas"]
    wanted: dict[str, Any] = {}
    names = [it.__name__ for it in TYPED_ANSWERS]
    while names:
        name = names.pop()
        if name not in wanted:
            wanted[name] = schemas[name]
            names += _references(schemas[name])
    info = {"title": "volsched", "version": "v1"}
    return {"openapi": "3.0.3", "info": info, "paths": {}, "components": {"schemas": dict(sorted(wanted.items()))}}


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for it in schema for name in _references(it)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"].removeprefix(REFERENCE)] if isinstance(schema.get("$ref"), str) else []
    return own + [name for it in schema.values() for name in _references(it)]


if __name__ == "__main__":
    json.dump(console_schemas(), sys.stdout, indent=1)
