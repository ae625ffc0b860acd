"""The `scale` subresource: how many replicas a StatefulSet should have, without the rest of it."""

from collections.abc import Callable
from typing import Any

from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.bodies import Manifest, RequestBody, check_kind, patched, read_mapping, read_patch
from volsched.api.kubernetes.negotiation import MERGE_PATCH, STRATEGIC_PATCH, body_form, patch_form
from volsched.api.kubernetes.object_reads import read_one
from volsched.api.kubernetes.paths import RequestTarget
from volsched.api.kubernetes.queries import Query, least_version, writing
from volsched.api.kubernetes.statuses import ApiError, invalid_object
from volsched.api.services import Services
from volsched.kube.validation.field_errors import NOT_NEGATIVE, invalid
from volsched.kube.validation.fields import fields_at, items_at, number_at, text_at, texts_at
from volsched.objects import door
from volsched.questions.get.documents import as_manifest

SCALE, API = "Scale", "autoscaling/v1"
_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(stateful_set: Manifest) -> Manifest:
    spec, metadata = fields_at(stateful_set, "spec"), fields_at(stateful_set, "metadata")
    replicas = number_at(spec, "replicas")
    return {
        "kind": SCALE,
        "apiVersion": API,
        "metadata": {name: metadata[name] for name in _SHOWN if name in metadata},
        "spec": {"replicas": 1 if replicas is None else replicas},
        "status": {
            "replicas": number_at(fields_at(stateful_set, "status"), "replicas") or 0,
            "selector": _selector_text(fields_at(spec, "selector")),
        },
    }


def _selector_text(selector: Any) -> str:
    labels = [f"{key}={value}" for key, value in fields_at(selector, "matchLabels").items()]
    for requirement in items_at(selector, "matchExpressions"):
        key, values = text_at(requirement, "key"), ",".join(texts_at(requirement, "values"))
        match text_at(requirement, "operator"):
            case "Exists":
                labels.append(key)
            case "DoesNotExist":
                labels.append(f"!{key}")
            case operator:
                labels.append(f"{key} {operator.lower()} ({values})")
    return ",".join(sorted(labels))


async def get_scale(services: Services, target: RequestTarget, query: Query) -> HttpAnswer:
    least, now = least_version(query), services.clock()
    item = await services.read(read_one, services.database, target, least=least, now=now)
    return HttpAnswer(scale_of(dict(as_manifest(target.resource.noun, item.key, item.state))))


async def update_scale(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    form = body_form(body.content_type)
    raw = await services.work(body.heavy, read_mapping, body.content, form, kind=SCALE)
    check_kind(raw, SCALE, API, served=SCALE)
    named = text_at(fields_at(raw, "metadata"), "name")
    if named and named != target.name:
        message = f"the name of the object ({named}) does not match the name on the URL ({target.name})"
        raise ApiError(400, message)
    return await _write(services, target, query, lambda _: raw, "UpdateOptions", heavy=body.heavy)


async def patch_scale(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    form = patch_form(body.content_type)
    given = await services.work(body.heavy, read_patch, body.content, form)
    # A scale has no lists that could be merged by a key.
    form = MERGE_PATCH if form == STRATEGIC_PATCH else form

    def change(scale: Manifest) -> Manifest:
        return patched(scale, given, form, target.resource.kind)

    return await _write(services, target, query, change, "PatchOptions", heavy=body.heavy)


async def _write(
    services: Services,
    target: RequestTarget,
    query: Query,
    change: Callable[[Manifest], Manifest],
    options: str,
    *,
    heavy: bool,
) -> HttpAnswer:
    asked = writing(query, options)

    def scaled(stateful_set: Manifest) -> Manifest:
        scale = change(scale_of(stateful_set))
        replicas = number_at(fields_at(scale, "spec"), "replicas") or 0
        if replicas < 0:
            error = invalid("spec.replicas", replicas, NOT_NEGATIVE)
            raise invalid_object(f"{SCALE}.autoscaling", target.name or "", [error], {"group": "autoscaling"})
        version = text_at(fields_at(scale, "metadata"), "resourceVersion")
        metadata = {**stateful_set["metadata"], **({"resourceVersion": version} if version else {})}
        return {**stateful_set, "metadata": metadata, "spec": {**stateful_set["spec"], "replicas": replicas}}

    write = door.patch(target.resource.kind.name, target.key, scaled, services.author())
    written = await services.write(write, dry_run=asked.dry_run, heavy=heavy)
    return HttpAnswer(scale_of(written.manifest))
