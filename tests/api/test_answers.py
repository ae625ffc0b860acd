"""What a real API server (1.37) answers to requests of every kind is what ours answers: code, reason and message.

`answers.jsonl` holds the requests in their order, each with the real answer: first what is made, then what is
asked of it; a message that ends with … is only its beginning, `causes` are those of a refusal, and `holds` is a
part of the object in the answer.
Differences that we want are not in it; they stand in docs/api.md, each with its reason.
"""

import json
import re
from pathlib import Path
from typing import Any

from tests.support.serving import Served

ANSWERS = Path(__file__).with_name("answers.jsonl")
UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def part_of(whole: Any, part: Any) -> Any:
    """Of what is answered, as much as is expected."""
    if part == "":
        return ""
    if isinstance(whole, dict) and isinstance(part, dict):
        return {name: part_of(whole.get(name), wanted) for name, wanted in part.items()}
    return whole


def asked(api: Served, row: dict[str, Any]) -> tuple[int, str, Any]:
    body = row.get("body")
    content = body if isinstance(body, str) else json.dumps(body)
    answer = api.http.request(
        row["method"],
        row["path"],
        content=None if body is None else content,
        headers={} if body is None else {"content-type": row.get("type", "application/json")},
    )
    told = answer.json()
    if answer.status_code < 400:
        return answer.status_code, str(told.get("kind")), part_of(told, row.get("holds", ""))
    message = UID.sub("<UID>", told["message"].split("\n")[0])
    if "causes" in row:
        return answer.status_code, told.get("reason", ""), [message, told["details"]["causes"]]
    return answer.status_code, told.get("reason", ""), message


def expected(row: dict[str, Any]) -> tuple[int, str, Any]:
    told = row.get("message", row.get("holds", ""))
    if "causes" in row:
        told = [told, row["causes"]]
    return row["code"], row.get("reason", row.get("kind") or "Status"), told


def test_every_answer_is_that_of_a_real_server(api: Served) -> None:
    differ = []
    for row in map(json.loads, ANSWERS.read_text().splitlines()):
        code, reason, message = asked(api, row)
        want = expected(row)
        if isinstance(want[2], str) and want[2].endswith("…"):
            message = message[: len(want[2]) - 1] + "…"
        if row["about"] == "made before":
            assert code == row["code"], (row, message)
        elif (code, reason, message) != want:
            differ.append((row["about"], want, (code, reason, message)))
    assert not differ
