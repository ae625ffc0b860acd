"""What is refused at creation in the metadata of every kind: names, namespaces, labels and annotations."""

import pytest

from tests.support.manifest_samples import REMOVED, only_problem, verdict
from volsched.kube.kinds import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_object_needs_a_name(kind: str) -> None:
    for change in (("metadata", REMOVED), ("metadata/name", "")):
        assert only_problem(kind, change) == "metadata.name: Required value: name or generateName is required"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("Namespace", "Event", "StatefulSet")])
@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("a", True),
        ("a.b-c.0", True),
        ("x" * 253, True),
        ("x" * 254, False),
        ("A", False),
        ("a_b", False),
        ("-a", False),
    ],
)
def test_names_are_dns_subdomains(kind: str, name: str, legal: bool) -> None:
    found = verdict(kind, ("metadata/name", name))
    assert (found == []) is legal
    assert legal or "metadata.name: " in found[0]


@pytest.mark.parametrize(("name", "legal"), [("shop", True), ("a.b", False), ("x" * 63, True), ("x" * 64, False)])
def test_namespaces_and_stateful_sets_are_dns_labels(name: str, legal: bool) -> None:
    assert (verdict("Namespace", ("metadata/name", name)) == []) is legal
    assert (verdict("StatefulSet", ("metadata/name", name)) == []) is legal
    assert (verdict("Pod", ("metadata/namespace", name)) == []) is legal


def test_an_event_may_have_any_name() -> None:
    assert verdict("Event", ("metadata/name", "Some_Node." + "x" * 300)) == []


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if not kind.namespaced])
def test_cluster_wide_objects_have_no_namespace(kind: str) -> None:
    problem = only_problem(kind, ("metadata/namespace", "shop"))
    assert problem == "metadata.namespace: Forbidden: not allowed on this type"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"app": "db", "example.com/tier": "", "A_b.c": "X-y_z.9"}, None),
        ({"-app": "db"}, 'metadata.labels: Invalid value: "-app": name part must consist of'),
        ({"/app": "db"}, 'metadata.labels: Invalid value: "/app": prefix part must be non-empty'),
        ({"a/b/c": "db"}, "with an optional DNS subdomain prefix and '/'"),
        ({"Example.com/x": "db"}, "prefix part a lowercase RFC 1123 subdomain must"),
        ({"app": "-db"}, 'metadata.labels: Invalid value: "-db": a valid label must be'),
        ({"app": "x" * 64}, "must be no more than 63 characters"),
        ({"app": "a b"}, "a valid label must be an empty string or"),
    ],
)
def test_labels_follow_the_rules_of_labels(labels: dict[str, str], expected: str | None) -> None:
    found = verdict("Node", ("metadata/labels", labels))
    assert found == [] if expected is None else expected in found[0]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"Example.com/Note": "anything\nat all"}, None),
        ({"n": "x" * (256 * 1024 - 1)}, None),
        ({"n": "x" * 256 * 1024}, "metadata.annotations: Too long: may not be more than 262144 bytes"),
        ({"n": "ü" * 128 * 1024}, "metadata.annotations: Too long: may not be more than 262144 bytes"),
        ({"a b": ""}, 'metadata.annotations: Invalid value: "a b": name part must'),
    ],
)
def test_annotations_have_legal_keys_and_a_sum(annotations: dict[str, str], expected: str | None) -> None:
    found = verdict("Node", ("metadata/annotations", annotations))
    assert found == [] if expected is None else expected in found[0]
