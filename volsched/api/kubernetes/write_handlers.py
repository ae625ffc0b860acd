"""Requests that write: create, update, patch, delete, the binding of a pod, and the `scale` subresource."""

import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from volsched.api.kubernetes.bodies import (
    SMALL_BYTES,
    Manifest,
    RequestBody,
    applied_manifest,
    check_kind,
    check_patched_kind,
    check_size,
    check_types,
    field_warnings,
    fitted,
    patched,
    read_mapping,
    read_patch,
)
from volsched.api.kubernetes.negotiation import (
    APPLY_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    HttpAnswer,
    body_form,
    object_list,
    patch_form,
)
from volsched.api.kubernetes.queries import (
    FieldValidation,
    ListOptions,
    Query,
    dry_run,
    field_manager,
    least_version,
    selection,
    write_options,
)
from volsched.api.kubernetes.read_handlers import read_one, read_page
from volsched.api.kubernetes.resources import STATUS, RequestTarget
from volsched.api.kubernetes.statuses import (
    UNEXPLAINED,
    ApiError,
    error_of,
    invalid_object,
    invalid_options,
    success,
)
from volsched.api.services import Services
from volsched.kube.manifest import uid
from volsched.kube.strategic_merge import go_text
from volsched.kube.validation.cluster_events import new_event_errors
from volsched.kube.validation.field_errors import NOT_NEGATIVE, dns_subdomain, each, invalid, required, unsupported
from volsched.kube.validation.fields import fields_at, items_at, number_at, text_at, texts_at
from volsched.log.commands import ConflictError
from volsched.objects import door
from volsched.objects.rules.admission import AdmissionContext
from volsched.objects.rules.object_events import is_creation
from volsched.objects.surroundings import Subject
from volsched.questions.get.documents import as_manifest

SUFFIX = 5
_SUFFIX_LETTERS = string.ascii_lowercase + string.digits
_SCHEME = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"
PROPAGATION = (door.Dependents.FOREGROUND, door.Dependents.BACKGROUND, door.Dependents.ORPHAN)
ANSWERED_WITH_STATUS = frozenset({"Node", "Namespace", "Event", "StatefulSet", "CSIStorageCapacity"})
"""Kinds whose deletion Kubernetes answers with a Status once they are gone; the others, with their last state."""


async def create(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    options = write_options(query, "CreateOptions")
    manifest, warnings = await services.work(body.heavy, _manifest_to_create, target, body, options.validation)
    created = replace(target, name=str(manifest["metadata"].get("name", "")))
    try:
        kind, key = created.resource.kind.name, created.key
        author = services.author(field_manager(query, body.agent))
        context = await services.surroundings(Subject(kind, key, manifest))
        write = door.create(kind, manifest, author, uid=services.new_uid(), key=key, around=context)
        written = await services.write(write, dry_run=options.dry_run, heavy=body.heavy)
    except Exception as error:
        raise error_of(error, created) from error
    return HttpAnswer(target.resource.as_shown(written.manifest), 201, warnings)


def _manifest_to_create(
    target: RequestTarget, body: RequestBody, validation: FieldValidation
) -> tuple[Manifest, list[str]]:
    """The object to be created, and the warnings."""
    kind = target.resource.kind
    raw = read_mapping(body.content, body_form(body.content_type), kind=kind.name)
    manifest = fitted(raw, target, new_suffix=_suffix())
    check_types(kind, manifest)
    manifest = target.resource.as_stored(manifest)
    if target.resource.has_own_form and (errors := new_event_errors(manifest)):
        # The errors name the fields as in the core group, in whose form the event is stored.
        name = text_at(manifest["metadata"], "name")
        raise invalid_object(kind.name, name, errors, {"name": name})
    if manifest["metadata"].get("resourceVersion", "0") not in ("", "0"):
        # A resourceVersion refers to an existing object.
        raise ApiError(500, "resourceVersion should not be set on objects to be created", reason=UNEXPLAINED)
    return manifest, field_warnings(kind, raw, validation)


async def update(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    options = write_options(query, "UpdateOptions")
    manifest, warnings = await services.work(body.heavy, _manifest_to_update, target, body, options.validation)
    write = door.update(
        target.resource.kind.name,
        manifest,
        services.author(field_manager(query, body.agent), target.subresource),
        key=target.key,
        status=target.subresource == STATUS,
        around=await _context_of_change(services, target),
        reworks=True,
    )
    written = await services.write(write, dry_run=options.dry_run, heavy=body.heavy)
    return HttpAnswer(target.resource.as_shown(written.manifest), 200, warnings)


def _manifest_to_update(
    target: RequestTarget, body: RequestBody, validation: FieldValidation
) -> tuple[Manifest, list[str]]:
    kind = target.resource.kind
    raw = read_mapping(body.content, body_form(body.content_type), kind=kind.name)
    manifest = fitted(raw, target)
    check_types(kind, manifest)
    version = text_at(manifest["metadata"], "resourceVersion")
    if version and not version.isdecimal():
        raise ApiError(500, f'strconv.ParseUint: parsing "{version[:80]}": invalid syntax', reason=UNEXPLAINED)
    return target.resource.as_stored(manifest), field_warnings(kind, raw, validation)


async def _context_of_change(services: Services, target: RequestTarget) -> AdmissionContext:
    changes = target.subresource is None
    return await services.surroundings(Subject(target.resource.kind.name, target.key, None, changes=changes))


async def patch(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    form = patch_form(body.content_type)
    if form == APPLY_PATCH:
        return await _apply(services, target, query, body)
    options = write_options(query, "PatchOptions")
    changes = await services.work(body.heavy, read_patch, body.content, form)
    resource, kind = target.resource, target.resource.kind
    warnings: list[str] = []

    def change(manifest: Manifest) -> Manifest:
        before = resource.as_shown(manifest)
        result = patched(before, changes, form, kind)
        shown = go_text(changes) if form == STRATEGIC_PATCH else result
        check_patched_kind(kind, result, shown)
        wanted = fitted(result, target)
        check_types(kind, wanted, before, shown=shown)
        warnings[:] = field_warnings(kind, wanted, options.validation, before, shown=shown)
        return resource.as_stored(wanted)

    status, context = target.subresource == STATUS, await _context_of_change(services, target)
    author = services.author(field_manager(query, body.agent), target.subresource)
    write = door.patch(kind.name, target.key, change, author, status=status, around=context)
    written = await services.write(write, dry_run=options.dry_run, heavy=body.heavy)
    return HttpAnswer(target.resource.as_shown(written.manifest), 200, warnings)


async def _apply(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    """Server-side apply."""
    if target.resource.has_own_form:
        raise ApiError(415, "events of this group cannot be applied; apply those of v1")
    options = write_options(query, "PatchOptions", apply=True)
    kind, status = target.resource.kind, target.subresource == STATUS
    manifest = await services.work(body.heavy, applied_manifest, body, target)
    subject = Subject(kind.name, target.key, manifest, changes=not status)
    write = door.apply_server_side(
        kind.name, target.key, manifest, services.author(field_manager(query, body.agent), target.subresource),
        uid=services.new_uid(), force=options.force, status=status, around=await services.surroundings(subject),
    )  # fmt: skip
    written = await services.write(write, dry_run=options.dry_run, heavy=body.heavy)
    event = write.admitted.event
    return HttpAnswer(written.manifest, 201 if event is not None and is_creation(event) else 200)


async def delete(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    options = await services.work(body.heavy, _options, query, body)
    conditions = options.get("preconditions", {})
    uid, version = conditions.get("uid"), conditions.get("resourceVersion")
    grace = grace_period(options, query)
    write = door.delete(
        target.resource.kind.name, target.key, services.author(), uid=uid, version=version, grace=grace,
        dependents=_dependents(options),
    )  # fmt: skip
    written = await services.write(write, dry_run=is_dry(query, options))
    if written.gone and target.resource.kind.name in ANSWERED_WITH_STATUS:
        return HttpAnswer(success(target, written.manifest["metadata"].get("uid")))
    return HttpAnswer(target.resource.as_shown(written.manifest))


async def delete_collection(
    services: Services, target: RequestTarget, query: Query, body: RequestBody
) -> HttpAnswer:
    options = await services.work(body.heavy, _options, query, body)
    listing = ListOptions(selection=selection(query, target.resource))
    page = await services.read(read_page, services.database, target, listing, now=services.clock())
    deleted: list[Manifest] = []
    for item in page.items:
        metadata = item.manifest["metadata"]
        item_target = replace(target, namespace=metadata.get("namespace"), name=metadata["name"])
        kind, uid = item_target.resource.kind.name, metadata.get("uid")
        grace, dependents = grace_period(options, query), _dependents(options)
        write = door.delete(kind, item_target.key, services.author(), uid=uid, grace=grace, dependents=dependents)
        try:
            deleted.append((await services.write(write, dry_run=is_dry(query, options))).manifest)
        except Exception as error:
            api_error = error_of(error, item_target)
            # Deleted or recreated meanwhile: a recreated object is not among those that were listed.
            if api_error.code not in (404, 409):
                raise api_error from error
    shown = list(map(target.resource.as_shown, deleted))
    return HttpAnswer(object_list(target.resource, shown, {"resourceVersion": str(page.position)}))


async def bind(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    raw = await services.work(body.heavy, small_body, body, "Binding")
    check_kind(raw, "Binding", "v1", served="Binding")
    node_reference, metadata = fields_at(raw, "target"), fields_at(raw, "metadata")
    if text_at(metadata, "name") != target.name:
        raise ApiError(400, "name in URL does not match name in Binding object")
    node, kind = text_at(node_reference, "name"), text_at(node_reference, "kind")
    errors = [] if kind in ("", "Node") else [unsupported("target.kind", kind, ("Node", "<empty>"))]
    if not node:
        errors.append(required("target.name"))
    elif not errors:
        errors += each("target.name", node, dns_subdomain(node))
    if errors:
        texts = [str(error) for error in errors]
        raise ApiError(500, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]", reason=UNEXPLAINED)
    uid, version = text_at(metadata, "uid") or None, text_at(metadata, "resourceVersion") or None
    notes = fields_at(metadata, "annotations")
    author = services.author()
    write = door.bind(target.key, node, author, expected_uid=uid, expected_version=version, notes=notes)
    await services.write(write, dry_run=write_options(query, "CreateOptions").dry_run)
    return HttpAnswer(success(target, None, code=201), 201)


def small_body(body: RequestBody, kind: str) -> Manifest:
    form = body_form(body.content_type)
    check_size(body.content, form, most=SMALL_BYTES)
    return read_mapping(body.content, form, kind=kind)


def _options(query: Query, body: RequestBody) -> Mapping[str, Any]:
    """DeleteOptions of the body and the query."""
    options: dict[str, Any] = {}
    if body.content.strip():
        options = small_body(body, "DeleteOptions")
        if options.get("kind", "DeleteOptions") != "DeleteOptions":
            problem = f'no kind "{str(options["kind"])[:80]}" is registered for version "v1" in scheme "{_SCHEME}"'
            raise ApiError(400, problem)
    return deletion_options(query, options)


def deletion_options(query: Query, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The checked options, with the policy for dependents under one name; ApiError where they cannot be parsed."""
    conditions = options.get("preconditions", {})
    if not isinstance(conditions, dict) or not all(isinstance(it, str) for it in conditions.values()):
        raise ApiError(400, "preconditions: uid and resourceVersion are strings")
    grace_period(options, query)
    policy = options.get("propagationPolicy") or query.get("propagationPolicy")
    orphans = options.get("orphanDependents") or query.get("orphanDependents", "false") not in ("", "0", "false")
    at = "propagationPolicy"
    if policy and orphans:
        message = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid_options("DeleteOptions", invalid(at, policy, message))
    if policy and policy not in PROPAGATION:
        raise invalid_options("DeleteOptions", unsupported(at, str(policy)[:80], (*PROPAGATION, "nil")))
    return {**options, at: policy or ("Orphan" if orphans else None)}


def _dependents(options: Mapping[str, Any]) -> door.Dependents:
    return door.Dependents(options.get("propagationPolicy") or door.Dependents.BACKGROUND)


def grace_period(options: Mapping[str, Any], query: Query) -> int | None:
    """The requested grace period; None: the pod's own. ApiError 400, and no deletion, where it cannot be read."""
    in_body, in_query = options.get("gracePeriodSeconds"), query.get("gracePeriodSeconds")
    if in_query is not None and not in_query.removeprefix("-").isdecimal():
        raise ApiError(400, f'strconv.ParseInt: parsing "{in_query[:80]}": invalid syntax')
    if in_body is not None and type(in_body) is not int:
        raise ApiError(400, "gracePeriodSeconds must be a whole number")
    return in_body if in_body is not None or in_query is None else int(in_query)


def is_dry(query: Query, options: Mapping[str, Any]) -> bool:
    values = options.get("dryRun") or [query.get("dryRun")]
    if not isinstance(values, list) or len(values) != 1 or not isinstance(values[0], str | None):
        raise invalid_options("DeleteOptions", unsupported("dryRun", values, ("All",)))
    return dry_run(values[0], "DeleteOptions")


def _suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(SUFFIX))


# The `scale` subresource: a StatefulSet's number of replicas, without the rest of it.

SCALE, API, SUBRESOURCE = "Scale", "autoscaling/v1", "scale"
_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(stateful_set: Manifest) -> Manifest:
    spec, metadata = fields_at(stateful_set, "spec"), fields_at(stateful_set, "metadata")
    replicas = number_at(spec, "replicas")
    wanted = 1 if replicas is None else replicas
    return {
        "kind": SCALE,
        "apiVersion": API,
        "metadata": {name: metadata[name] for name in _SHOWN if name in metadata},
        "spec": {"replicas": wanted} if wanted else {},
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
    name = text_at(fields_at(raw, "metadata"), "name")
    if name and name != target.name:
        message = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        raise ApiError(400, message)
    manager = field_manager(query, body.agent)
    return await _write_scale(
        services, target, query, lambda _: raw, "UpdateOptions", manager=manager, heavy=body.heavy
    )


async def patch_scale(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    form = patch_form(body.content_type)
    if form == APPLY_PATCH:
        raise ApiError(415, "a scale cannot be applied; apply spec.replicas of the object, or patch the scale")
    changes = await services.work(body.heavy, read_patch, body.content, form)
    # A scale has no lists that could be merged by a key.
    form = MERGE_PATCH if form == STRATEGIC_PATCH else form

    def change(scale: Manifest) -> Manifest:
        return patched(scale, changes, form, target.resource.kind)

    manager = field_manager(query, body.agent)
    return await _write_scale(services, target, query, change, "PatchOptions", manager=manager, heavy=body.heavy)


def _check_uid(metadata: Mapping[str, Any], stateful_set: Manifest) -> None:
    wanted, have = text_at(metadata, "uid"), uid(stateful_set)
    if wanted and wanted != have:
        message = f"the set has uid {have}, not {wanted}: it was deleted and recreated"
        raise ConflictError(message, subject="StatefulSet", field="uid", wanted=wanted, have=have)


async def _write_scale(
    services: Services,
    target: RequestTarget,
    query: Query,
    change: Callable[[Manifest], Manifest],
    kind: str,
    *,
    manager: str,
    heavy: bool,
) -> HttpAnswer:
    options = write_options(query, kind)

    def scaled(stateful_set: Manifest) -> Manifest:
        scale = change(scale_of(stateful_set))
        replicas = number_at(fields_at(scale, "spec"), "replicas") or 0
        if replicas < 0:
            error = invalid("spec.replicas", replicas, NOT_NEGATIVE)
            raise invalid_object(f"{SCALE}.autoscaling", target.name or "", [error], {"group": "autoscaling"})
        _check_uid(fields_at(scale, "metadata"), stateful_set)
        version = text_at(fields_at(scale, "metadata"), "resourceVersion")
        metadata = {**stateful_set["metadata"], **({"resourceVersion": version} if version else {})}
        return {**stateful_set, "metadata": metadata, "spec": {**stateful_set["spec"], "replicas": replicas}}

    author = services.author(manager, SUBRESOURCE)
    write = door.patch(target.resource.kind.name, target.key, scaled, author)
    written = await services.write(write, dry_run=options.dry_run, heavy=heavy)
    return HttpAnswer(scale_of(written.manifest))
