"""Makes `volsched/kube/fields.json`: every field that Kubernetes has in our kinds, from its official client.

    python -m tests.api.field_types > new.json && mv new.json volsched/kube/fields.json

A type is written `string`, `int`, `[T]` for a list, `{T}` for a mapping with any keys, or the name of another.
"""

import re
import sys
from typing import Any

import orjson
from kubernetes.client import models

from volsched.api.kubernetes.resources import RESOURCES, ResourceStorage

MODEL_OF_KIND = {"v1 Event": "CoreV1Event", "events.k8s.io/v1 Event": "EventsV1Event"}
_PLAIN = {"str": "string", "int": "int", "float": "number", "bool": "bool", "object": "any", "datetime": "string"}


def field_types() -> dict[str, Any]:
    served = [it.kind for it in RESOURCES if it.stored_in is not ResourceStorage.NOT]
    named = {f"{it.api_version} {it.name}": f"V1{it.name}" for it in served}
    kinds = {name: MODEL_OF_KIND.get(name, model) for name, model in named.items()}
    types: dict[str, dict[str, str]] = {}
    waiting = list(kinds.values())
    while waiting:
        name = waiting.pop()
        if name in types:
            continue
        model = getattr(models, name)
        types[name] = {model.attribute_map[field]: _type(hint) for field, hint in model.openapi_types.items()}
        waiting += [inner for hint in types[name].values() if (inner := hint.strip("[]{}")) not in _PLAIN.values()]
    return {"kinds": kinds, "types": types}


def _type(hint: str) -> str:
    if found := re.fullmatch(r"[Ll]ist\[(.*)\]", hint):
        return f"[{_type(found[1])}]"
    if found := re.fullmatch(r"[Dd]ict[\[(]str, (.*)[\])]", hint):
        return f"{{{_type(found[1])}}}"
    return _PLAIN.get(hint, hint)


def dumped() -> bytes:
    return orjson.dumps(field_types(), option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2) + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(dumped())
