"""Explain, simulate, verify, export: long work, done in a thread while a few others wait for their turn."""

import io
from collections.abc import Sequence
from typing import Any

import orjson

from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.models import Explain, Simulate, Verify
from volsched.api.questions.operations import Context, OperationRequest
from volsched.kube.kinds import Object
from volsched.kube.manifest_reader import load_manifests
from volsched.kube.problems import ManifestError
from volsched.log.errors import StoreError
from volsched.log.integrity.anchors import parse_anchor
from volsched.log.integrity.verify import verify
from volsched.log.reads.event_audit import Window
from volsched.log.retention.export import events_of, manifest_of, write_jsonl
from volsched.questions.audit.verification import verified
from volsched.questions.history.moments import window_of
from volsched.questions.simulate.simulate import Scenario
from volsched.questions.source import explained, explained_as_of, named_object, sight_of, simulated
from volsched.scheduling.rules.profile import PROFILES, Profile

MOST_EXPORTED = 50_000
"""Events in one answer; whoever wants more asks for the next range."""


def explain_stored(context: Context, asked: OperationRequest) -> HttpAnswer:
    key, as_of = f"{asked.namespace}/{asked.path['name']}", asked.text("asOf")
    if as_of is not None:
        return HttpAnswer(
            explained_as_of(
                context.services.database, key, as_of=as_of, now=asked.now, namespaces=asked.namespaces
            )
        )
    seen = sight_of(context.services.database, (), profile=_profile(context, asked.text("profile")))
    return HttpAnswer(explained(seen, key, node=asked.text("node"), now=asked.now, namespaces=asked.namespaces))


def explain(context: Context, asked: OperationRequest) -> HttpAnswer:
    body: Explain = asked.body
    database = None if body.alone else context.services.database
    seen = sight_of(database, _objects(body.manifests), profile=_profile(context, body.profile))
    key = body.pod if "/" in body.pod else f"default/{body.pod}"
    return HttpAnswer(explained(seen, key, node=body.node or None, now=asked.now, namespaces=asked.namespaces))


def _profile(context: Context, name: str | None) -> Profile:
    """The one that the schedulers decide with, unless another is named."""
    return PROFILES[name] if name else context.configuration.profile


def simulate(context: Context, asked: OperationRequest) -> HttpAnswer:
    body: Simulate = asked.body
    scenario = Scenario(
        drain=tuple(body.drain),
        lose_nodes=tuple(body.loseNodes),
        lose_zones=tuple(body.loseZones),
        add=tuple(_objects(body.add)),
        delete=tuple(named_object(it) for it in body.delete),
    )
    seen = sight_of(context.services.database, (), profile=context.configuration.profile)
    return HttpAnswer(simulated(seen, scenario))


def verify_store(context: Context, asked: OperationRequest) -> HttpAnswer:
    body: Verify | None = asked.body
    lines = [] if body is None else [*([body.anchor] if body.anchor else []), *body.anchors]
    try:
        anchors = [*map(parse_anchor, lines)]
    except StoreError as error:
        raise ApiError(422, f"anchor: {error}") from None
    return HttpAnswer(verified(verify(context.services.database, anchors=anchors)))


def export(context: Context, asked: OperationRequest) -> HttpAnswer:
    """A part of the log as `volsched export` writes it, for anybody to verify."""
    out = io.StringIO()
    with context.services.database.read() as connection:
        within: Window = window_of(connection, since=asked.text("since"), until=asked.text("until"), now=asked.now)
        if within.first > within.last:
            raise ApiError(404, "nothing was written in that time")
        last = min(within.last, within.first + asked.query["limit"] - 1)
        manifest = manifest_of(connection, first=within.first, last=last, now=asked.now)
        write_jsonl(out, manifest, events_of(connection, manifest))
    return HttpAnswer({"text": out.getvalue(), "first": manifest.first, "last": manifest.last})


def _objects(manifests: Sequence[dict[str, Any]]) -> list[Object]:
    """ApiError 422 with every defect of every manifest."""
    if not manifests:
        return []
    try:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        return [it.value for it in load_manifests(orjson.dumps(listed), source="the body of the request")]
    except ManifestError as error:
        causes = [{"reason": "FieldValueInvalid", "message": str(it), "field": ""} for it in error.problems[:50]]
        told = "; ".join(it["message"] for it in causes[:5])
        raise ApiError(422, f"manifests: {told}", details={"causes": causes}) from None
