"""Whatever the bytes, the answer is objects or a ManifestError, and what was loaded survives a dump."""

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.extent import extended, extent
from tests.support.manifest_samples import sample
from volsched.kube.kinds import KINDS
from volsched.kube.manifest_reader import Loaded, dump_manifests, load_manifests
from volsched.kube.problems import ManifestError

CLUSTER = Path(__file__).parent / "data" / "cluster.yaml"
SAMPLES = [sample(kind) for kind in KINDS]
SAMPLES += [one.manifest for one in load_manifests(CLUSTER.read_bytes(), source="cluster.yaml")]

FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
WORDS = st.sampled_from(["", "-1", "10GB", "Exists", "In", "metadata.name", "x" * 300, "a/b/c", "ü", "2026-11-16"])
VALUES = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | WORDS, inner, max_size=3),
    max_leaves=6,
)
YAML_PIECES = st.sampled_from(
    ["a", ":", " ", "\n", "- ", "[", "]", "{", "}", "&x ", "*x", "<<", "!!", "!", "|", ">", "'", '"', "#", "---",
     "...", "%", "?", ",", "\t", "0x", "_", ".", "1", "null", "kind: ", "List", "items", "\\u", "d800", "\u2028",
     "\ufeff"]
)  # fmt: skip


def outcome(data: bytes) -> list[Loaded] | None:
    """What was loaded; None where it was refused, which is checked to be said properly."""
    try:
        return load_manifests(data, source="fuzz")
    except ManifestError as error:
        refusal = error
    assert refusal.problems
    assert all(str(problem).isprintable() for problem in refusal.problems)
    assert not refusal.unreadable or len(refusal.problems) == 1
    return None


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes_are_loaded_or_refused(data: bytes) -> None:
    outcome(data)


@FUZZ
@given(st.text(max_size=100))
def test_any_text_is_loaded_or_refused(text: str) -> None:
    outcome(text.encode("utf-8", errors="surrogatepass"))


@extended
@settings(FUZZ, max_examples=extent(300, 600))
@given(st.lists(YAML_PIECES, max_size=30))
def test_any_heap_of_yaml_tokens_is_loaded_or_refused(pieces: list[str]) -> None:
    outcome("".join(pieces).encode())


@FUZZ
@given(VALUES)
def test_any_json_is_loaded_or_refused(value: Any) -> None:
    outcome(json.dumps(value).encode())


@FUZZ
@given(st.data())
def test_torn_and_flipped_files_are_loaded_or_refused(data: st.DataObject) -> None:
    whole = json.dumps(data.draw(st.sampled_from(SAMPLES)), indent=data.draw(st.sampled_from([None, 1]))).encode()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    outcome(whole[:start] + data.draw(st.binary(max_size=4)) + whole[end:])


@extended
@settings(FUZZ, max_examples=extent(400, 1500))
@given(st.data())
def test_a_valid_manifest_with_anything_spliced_in_is_loaded_or_refused(data: st.DataObject) -> None:
    manifest = copy.deepcopy(data.draw(st.sampled_from(SAMPLES)))
    for _ in range(data.draw(st.integers(1, 3))):
        splice(data, manifest)
    loaded = outcome(json.dumps(manifest).encode())
    if loaded is not None:
        text = dump_manifests(one.manifest for one in loaded)
        assert load_manifests(text.encode(), source="again") == loaded


def splice(data: st.DataObject, manifest: Any) -> None:
    """Put any value at a random place of the manifest, its own or a new one."""
    holder = manifest
    for _ in range(data.draw(st.integers(0, 8))):
        inner = [
            item
            for item in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(item, dict | list)
        ]
        inner = [item for item in inner if item]
        if not inner:
            break
        holder = data.draw(st.sampled_from(inner))
    if isinstance(holder, dict):
        keys = sorted(holder)
        holder[data.draw((st.sampled_from(keys) | TEXT) if keys else TEXT)] = data.draw(VALUES)
    else:
        holder[data.draw(st.integers(0, len(holder) - 1))] = data.draw(VALUES)


@FUZZ
@given(VALUES, st.sampled_from(["annotations", "extra"]))
def test_what_is_dumped_is_what_is_loaded(value: Any, where: str) -> None:
    manifest = sample("Namespace")
    if where == "annotations":
        manifest["metadata"]["annotations"] = {"note": json.dumps(value, ensure_ascii=False)}
    else:
        manifest["extra"] = value
    first = outcome(json.dumps(manifest).encode())
    if first is not None:
        text = dump_manifests(one.manifest for one in first)
        assert load_manifests(text.encode(), source="again") == first


DEFECTS = [
    ("kind", "Nothing"),
    ("apiVersion", "v0"),
    ("metadata", "text"),
    ("metadata", {"name": "a", "namespace": "Upper"}),
    ("metadata", {}),
    ("metadata", {"name": "a", "labels": {"b": 1}}),
    ("metadata", {"name": "a", "annotations": []}),
    ("metadata", {"name": "a", "finalizers": [None]}),
    ("status", 7),
]


@FUZZ
@given(st.lists(st.tuples(st.sampled_from(list(KINDS)), st.sampled_from([None, *DEFECTS])), max_size=8))
def test_every_object_with_a_defect_is_named(choices: list[tuple[str, tuple[str, Any] | None]]) -> None:
    manifests = []
    for number, (kind, defect) in enumerate(choices):
        manifest = sample(kind, name=f"one-{number}")
        if defect is not None:
            manifest[defect[0]] = defect[1]
        manifests.append(manifest)
    expected = {number for number, (_, defect) in enumerate(choices, start=1) if defect is not None}
    data = "\n".join(json.dumps(manifest) for manifest in manifests).encode()
    try:
        named = set()
        load_manifests(data, source="fuzz")
    except ManifestError as error:
        named = {problem.place.document for problem in error.problems}
    assert named == expected
