"""The tables of messages: what is sent is what is read, whole; and what is not known is never lost in silence."""

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.api.protobuf_encoder import encoded, encoded_message, enveloped, field
from volsched.api.kubernetes.protobuf import (
    INLINE,
    LIST,
    MAPPING,
    Field,
    fields_of_message,
    message_of,
    messages,
    read_message,
)
from volsched.api.kubernetes.statuses import ApiError
from volsched.kube.kinds import KINDS
from volsched.kube.known_fields import fields_of, item_type, type_of

OBJECTS = sorted(name for name in messages() if " " in name)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
WHOLE = st.integers(-(2**63), 2**63 - 1)
SECONDS = st.datetimes().map(lambda at: at.replace(microsecond=0).isoformat() + "Z")
MICROSECONDS = st.datetimes().map(lambda at: at.isoformat(timespec="microseconds") + "Z")
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXTS,
    "int": WHOLE.filter(bool),
    "bool": st.just(True),
    "bytes": st.just("aGVsbG8="),
    "quantity": st.sampled_from(["0", "1Gi", "500m", "10"]),
    "time": SECONDS,
    "microtime": MICROSECONDS,
    "intorstring": st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from(["25%", "http"])),
    "raw": st.just({"spec": {"template": {"$patch": "replace"}}}),
}
OURS = frozenset({"admittedBy", "dataState", "bindingMode"})
"""Fields that Kubernetes has not."""
ZERO = {"string": st.just(""), "int": st.just(0), "bool": st.just(False)}


@st.composite
def manifests(draw: st.DrawFn, message: str) -> dict[str, Any]:
    """As JSON shows an object that Go has read: what is zero stands there only where it means something."""
    made: dict[str, Any] = {}
    for it in fields_of_message(message).values():
        if it.shape == INLINE:
            made |= draw(manifests(it.type))
        elif it.always or _is_part(it) or draw(st.integers(0, 3)) == 0:
            value = draw(_field_values(it))
            if it.optional or it.always or value not in ({}, []):
                made[it.name] = value
    return made


def _is_part(it: Field) -> bool:
    """A message that Go's object always has in it: it is sent even where nothing in it is set."""
    return it.type not in PLAIN and it.shape not in (LIST, MAPPING) and not it.optional


def _field_values(it: Field) -> st.SearchStrategy[Any]:
    one = PLAIN[it.type] if it.type in PLAIN else manifests(it.type)
    zero = st.one_of(one, ZERO[it.type]) if it.type in ZERO else one
    if it.shape == LIST:
        return st.lists(zero, min_size=1, max_size=2)
    if it.shape == MAPPING:
        return st.dictionaries(TEXTS, zero, min_size=1, max_size=2)
    return zero if it.optional or it.always else one


# A counterexample of a whole pod is cut down for minutes; what differs is told by the one that was found.
@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
@pytest.mark.parametrize("named", OBJECTS)
def test_what_is_sent_is_read_whole(named: str, data: st.DataObject) -> None:
    version, kind = named.split(" ")
    sent = {"apiVersion": version, "kind": kind, **data.draw(manifests(messages()[named]))}
    assert read_message(encoded(sent)) == sent


@pytest.mark.parametrize("name", sorted(set(messages().values())))
def test_an_unknown_number_is_refused(name: str) -> None:
    """At the top, and in what stands below it."""
    version_kind = next(it for it, message in messages().items() if message == name)
    version, _, kind = version_kind.rpartition(" ")
    unknown = field(90, "of a newer client")
    bodies = [unknown] + [
        field(number, unknown)
        for number, it in fields_of_message(name).items()
        if it.type not in PLAIN and it.shape != MAPPING
    ]
    for body in bodies:
        with pytest.raises(ApiError) as told:
            read_message(enveloped(kind, body, version))
        assert told.value.code == 415
        assert "field number 90 of " in told.value.status["message"]


def test_silence_differs_from_zero() -> None:
    spec = encoded_message({"storageClassName": "", "volumeName": "", "accessModes": ["ReadWriteOnce"]},
                           "core.PersistentVolumeClaimSpec")  # fmt: skip
    found = read_message(enveloped("PersistentVolumeClaim", field(2, spec)))["spec"]
    assert found == {"storageClassName": "", "accessModes": ["ReadWriteOnce"]}
    scaled = enveloped("StatefulSet", field(2, field(1, 0)), "apps/v1")
    assert read_message(scaled)["spec"] == {"replicas": 0, "serviceName": ""}


def test_the_names_are_those_of_json() -> None:
    """Every field that the official client has is in the table; the client is older, and has not all of them."""
    missing = [
        f"{name}: {place}"
        for name, kind in KINDS.items()
        for place in _missing(type_of(kind), str(message_of(kind.api_version, name)))
    ]
    assert missing == []


def _missing(type_: str, message: str, at: str = "") -> list[str]:
    known = dict(_names(message))
    found: list[str] = []
    for name, holds in (fields_of(type_) or {}).items():
        place = f"{at}.{name}"
        if name in ("apiVersion", "kind") and "metadata" in (fields_of(type_) or ()):
            continue
        if name not in known:
            found += [] if name in OURS else [place]
        elif known[name].type not in PLAIN:
            inner = item_type(holds) if holds[0] in "[{" else holds
            found += _missing(inner, known[name].type, place)
    return found


def _names(message: str) -> list[tuple[str, Field]]:
    return [
        pair
        for it in fields_of_message(message).values()
        for pair in (_names(it.type) if it.shape == INLINE else [(it.name, it)])
    ]
