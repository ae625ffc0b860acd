"""`volsched conform`: the verdict in the last line and in the exit code."""

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

VECTORS = Path(__file__).parents[1] / "lab" / "binder.jsonl.gz"


def first_vectors(count: int) -> list[dict[str, object]]:
    with gzip.open(VECTORS) as lines:
        return [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]


def write(path: Path, cases: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return path


def test_all_vectors_pass(run: Run) -> None:
    ran = run("conform", str(VECTORS))
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == "1913 passed, 0 failed, 5 skipped"


def test_a_wrong_answer_fails_and_is_shown(run: Run, tmp_path: Path) -> None:
    cases = first_vectors(3)
    cases[1]["expected"]["preFilter"]["code"] = "Perhaps"  # type: ignore[index]
    ran = run("conform", str(write(tmp_path / "v.jsonl", cases)))
    assert ran.code == 1
    assert ran.out.splitlines()[-1] == "2 passed, 1 failed, 0 skipped"
    assert 'expected "Perhaps"' in ran.out
    assert "preFilter.code" in ran.out
    assert "preFilter.code" not in run("conform", str(tmp_path / "v.jsonl"), "--show", "0").out


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.jsonl", b"", "holds no vectors"),
        ("v.jsonl", b"{}\n", "line 1 is not a vector"),
        ("v.jsonl", b"not json\n", "line 1 is not a vector"),
        ("v.jsonl", b"\xff\xfe\n", "line 1 is not a vector"),
        ("v.jsonl", b'{"id": "x", "category": "c", "input": {}, "expected": {}}\n', "cannot be run yet"),
        ("v.jsonl.gz", b"not gzip", "cannot be read"),
        ("v.jsonl", b'{"id": "x", "category": "c", "input": 3, "expected": {}}\n', "must be objects"),
    ],
)
def test_a_file_that_holds_no_vectors_is_a_usage_error(
    run: Run, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    ran = run("conform", str(path))
    assert ran.code == 2
    assert message in ran.err
    assert ran.out == ""


def test_a_missing_file_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    ran = run("conform", str(tmp_path / "gone.jsonl"))
    assert ran.code == 2
    assert "gone.jsonl" in ran.err


def test_a_vector_that_cannot_be_read_fails_alone(run: Run, tmp_path: Path) -> None:
    cases = first_vectors(3)
    for index, odd in enumerate([{"metadata": 3}, None]):
        cases[index]["input"] = {**cases[index]["input"], "pod": odd}  # type: ignore[dict-item]
    ran = run("conform", str(write(tmp_path / "v.jsonl", cases)))
    assert ran.code == 1
    assert ran.out.splitlines()[-1] == "1 passed, 2 failed, 0 skipped"
    assert "Pod at metadata" in ran.out
