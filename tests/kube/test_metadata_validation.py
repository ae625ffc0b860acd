"""What is refused at creation in the metadata of every kind: names, namespaces, labels and annotations."""

import pytest

from tests.support.manifest_samples import REMOVED, only_problem, verdict
from volsched.kube.kinds import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_object_needs_a_name(kind: str) -> None:
    assert only_problem(kind, ("metadata", REMOVED)).startswith(
        "metadata.name: is required; write the name of the "
    )
    assert only_problem(kind, ("metadata/name", "")).startswith("metadata.name: is required")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("Namespace", "Event")])
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
def test_namespaces_are_dns_labels(name: str, legal: bool) -> None:
    assert (verdict("Namespace", ("metadata/name", name)) == []) is legal
    assert (verdict("Pod", ("metadata/namespace", name)) == []) is legal


def test_an_event_may_have_any_name() -> None:
    assert verdict("Event", ("metadata/name", "Some_Node." + "x" * 300)) == []


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if not kind.namespaced])
def test_cluster_wide_objects_have_no_namespace(kind: str) -> None:
    assert 'metadata.namespace: "shop" must be absent' in only_problem(kind, ("metadata/namespace", "shop"))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"app": "db", "example.com/tier": "", "A_b.c": "X-y_z.9"}, None),
        ({"-app": "db"}, "metadata.labels.-app: the key must be a name"),
        ({"/app": "db"}, 'metadata.labels["/app"]: the key must have a DNS subdomain'),
        ({"a/b/c": "db"}, "the key must have a DNS subdomain"),
        ({"Example.com/x": "db"}, "the key must have a DNS subdomain"),
        ({"app": "-db"}, 'metadata.labels.app: "-db" must be empty or 1 to 63'),
        ({"app": "x" * 64}, "must be empty or 1 to 63"),
        ({"app": "a b"}, "must be empty or 1 to 63"),
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
        ({"n": "x" * 256 * 1024}, "metadata.annotations: hold 262145 bytes"),
        ({"n": "ü" * 128 * 1024}, "metadata.annotations: hold 262145 bytes"),
        ({"a b": ""}, 'metadata.annotations["a b"]: the key must be a name'),
    ],
)
def test_annotations_have_legal_keys_and_a_sum(annotations: dict[str, str], expected: str | None) -> None:
    found = verdict("Node", ("metadata/annotations", annotations))
    assert found == [] if expected is None else expected in found[0]
