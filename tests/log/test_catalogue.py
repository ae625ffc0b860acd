"""The catalogue of events: every type has a model of its data, which writers are held to."""

import pytest

from volsched.log.events.catalogue import CATALOGUE, TITLES, CatalogueError, check_payload, payload_model
from volsched.log.events.payloads import Leg, Payload
from volsched.log.events.streams import NOUN_OF_KIND


def test_every_type_of_event_has_a_model_of_its_data_and_every_model_a_type() -> None:
    models = {payload_model(name) for name in CATALOGUE}
    # A leg is part of a plan.
    assert models == set(Payload.__subclasses__()) - {Leg}


def test_data_of_another_shape_is_refused_with_its_place() -> None:
    assert (
        check_payload("VolumeCreated", "volume", {"patch": {"spec": {}}, "reason": "new"}).name == "VolumeCreated"
    )
    with pytest.raises(CatalogueError, match="event type VolumeCreated: reason: Input should be a valid string"):
        check_payload("VolumeCreated", "volume", {"patch": {}, "reason": 3})
    with pytest.raises(CatalogueError, match="event type LeaseFreed: nobody: Extra inputs are not permitted"):
        check_payload("LeaseFreed", "lease", {"holder": "a", "epoch": 1, "nobody": "b"})


def test_events_carry_the_words_of_their_kind() -> None:
    """`RuntimeclassCreated` would stay in every log that has one."""
    renamed = {"Event": "Notice"}
    for kind, noun in NOUN_OF_KIND.items():
        assert TITLES[noun] in renamed.get(kind, kind)
