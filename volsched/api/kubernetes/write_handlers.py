"""Requests that write: create, update, patch, delete, and the binding of a pod."""

import secrets
import string
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.bodies import (
    SMALL_BYTES,
    Manifest,
    RequestBody,
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
from volsched.api.kubernetes.negotiation import STRATEGIC_PATCH, body_form, patch_form
from volsched.api.kubernetes.object_reads import read_page
from volsched.api.kubernetes.paths import RequestTarget
from volsched.api.kubernetes.queries import FieldValidation, Listing, Query, dry_run, selection, writing
from volsched.api.kubernetes.resources import STATUS
from volsched.api.kubernetes.statuses import UNEXPLAINED, ApiError, error_of, invalid_options, success
from volsched.api.kubernetes.tables import object_list
from volsched.api.services import Services
from volsched.kube.strategic_merge import go_text
from volsched.kube.validation.field_errors import each, invalid, required, unsupported
from volsched.kube.validation.fields import fields_at, text_at
from volsched.kube.validation.formats import dns_subdomain
from volsched.objects import door
from volsched.objects.rules.admission_chain import AdmissionContext
from volsched.objects.surroundings import Subject

SUFFIX = 5
_SUFFIX_LETTERS = string.ascii_lowercase + string.digits
_SCHEME = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"
PROPAGATION = ("Foreground", "Background", "Orphan")
ANSWERED_WITH_STATUS = frozenset({"Node", "Namespace", "Event", "StatefulSet", "CSIStorageCapacity"})
"""Kinds whose deletion Kubernetes answers with a Status once they are gone; of the others, with what they were."""


async def create(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    asked = writing(query, "CreateOptions")
    manifest, warnings = await services.work(body.heavy, _created, target, body, asked.validation)
    named = replace(target, name=str(manifest["metadata"].get("name", "")))
    try:
        kind, key = named.resource.kind.name, named.key
        around = await services.surroundings(Subject(kind, key, manifest))
        write = door.create(kind, manifest, services.author(), uid=services.new_uid(), key=key, around=around)
        written = await services.write(write, dry_run=asked.dry_run, heavy=body.heavy)
    except Exception as error:
        raise error_of(error, named) from error
    return HttpAnswer(target.resource.as_shown(written.manifest), 201, warnings)


def _created(target: RequestTarget, body: RequestBody, validation: FieldValidation) -> tuple[Manifest, list[str]]:
    """The object that is to be made, and what to warn of."""
    kind = target.resource.kind
    raw = read_mapping(body.content, body_form(body.content_type), kind=kind.name)
    manifest = fitted(raw, target, new_suffix=_suffix())
    check_types(kind, manifest)
    manifest = target.resource.as_stored(manifest)
    if manifest["metadata"].get("resourceVersion", "0") not in ("", "0"):
        # Whoever says one means an object that is there.
        raise ApiError(500, "resourceVersion should not be set on objects to be created", reason=UNEXPLAINED)
    return manifest, field_warnings(kind, raw, validation)


async def update(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    asked = writing(query, "UpdateOptions")
    manifest, warnings = await services.work(body.heavy, _updated, target, body, asked.validation)
    write = door.update(
        target.resource.kind.name,
        manifest,
        services.author(),
        key=target.key,
        status=target.subresource == STATUS,
        around=await _around_change(services, target),
        reworks=True,
    )
    written = await services.write(write, dry_run=asked.dry_run, heavy=body.heavy)
    return HttpAnswer(target.resource.as_shown(written.manifest), 200, warnings)


def _updated(target: RequestTarget, body: RequestBody, validation: FieldValidation) -> tuple[Manifest, list[str]]:
    kind = target.resource.kind
    raw = read_mapping(body.content, body_form(body.content_type), kind=kind.name)
    manifest = fitted(raw, target)
    check_types(kind, manifest)
    version = text_at(manifest["metadata"], "resourceVersion")
    if version and not version.isdecimal():
        raise ApiError(500, f'strconv.ParseUint: parsing "{version[:80]}": invalid syntax', reason=UNEXPLAINED)
    return target.resource.as_stored(manifest), field_warnings(kind, raw, validation)


async def _around_change(services: Services, target: RequestTarget) -> AdmissionContext:
    changes = target.subresource is None
    return await services.surroundings(Subject(target.resource.kind.name, target.key, None, changes=changes))


async def patch(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    form, asked = patch_form(body.content_type), writing(query, "PatchOptions")
    given = await services.work(body.heavy, read_patch, body.content, form)
    resource, kind = target.resource, target.resource.kind
    warnings: list[str] = []

    def change(manifest: Manifest) -> Manifest:
        before = resource.as_shown(manifest)
        made = patched(before, given, form, kind)
        shown = go_text(given) if form == STRATEGIC_PATCH else made
        check_patched_kind(kind, made, shown)
        wanted = fitted(made, target)
        check_types(kind, wanted, before, shown=shown)
        warnings[:] = field_warnings(kind, wanted, asked.validation, before, shown=shown)
        return resource.as_stored(wanted)

    status, around = target.subresource == STATUS, await _around_change(services, target)
    write = door.patch(kind.name, target.key, change, services.author(), status=status, around=around)
    written = await services.write(write, dry_run=asked.dry_run, heavy=body.heavy)
    return HttpAnswer(target.resource.as_shown(written.manifest), 200, warnings)


async def delete(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    options = await services.work(body.heavy, _options, query, body)
    conditions = options.get("preconditions", {})
    uid, version = conditions.get("uid"), conditions.get("resourceVersion")
    grace = _grace(options, query)
    write = door.delete(
        target.resource.kind.name, target.key, services.author(), uid=uid, version=version, grace=grace
    )
    written = await services.write(write, dry_run=_is_dry(query, options))
    if written.gone and target.resource.kind.name in ANSWERED_WITH_STATUS:
        return HttpAnswer(success(target, written.manifest["metadata"].get("uid")))
    return HttpAnswer(target.resource.as_shown(written.manifest))


async def delete_collection(
    services: Services, target: RequestTarget, query: Query, body: RequestBody
) -> HttpAnswer:
    options = await services.work(body.heavy, _options, query, body)
    asked = Listing(selection=selection(query, target.resource))
    found = await services.read(read_page, services.database, target, asked, now=services.clock())
    deleted: list[Manifest] = []
    for item in found.items:
        metadata = item.manifest["metadata"]
        one = replace(target, namespace=metadata.get("namespace"), name=metadata["name"])
        kind, uid = one.resource.kind.name, metadata.get("uid")
        write = door.delete(kind, one.key, services.author(), uid=uid, grace=_grace(options, query))
        try:
            deleted.append((await services.write(write, dry_run=_is_dry(query, options))).manifest)
        except Exception as error:
            told = error_of(error, one)
            # Gone already, or another one by now: it was not for us to delete.
            if told.code not in (404, 409):
                raise told from error
    shown = map(target.resource.as_shown, deleted)
    return HttpAnswer(object_list(target.resource, shown, {"resourceVersion": str(found.position)}))


async def bind(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    raw = await services.work(body.heavy, _small, body, "Binding")
    check_kind(raw, "Binding", "v1", served="Binding")
    named, metadata = fields_at(raw, "target"), fields_at(raw, "metadata")
    if text_at(metadata, "name") != target.name:
        raise ApiError(400, "name in URL does not match name in Binding object")
    node, kind = text_at(named, "name"), text_at(named, "kind")
    errors = [] if kind in ("", "Node") else [unsupported("target.kind", kind, ("Node", "<empty>"))]
    if not node:
        errors.append(required("target.name"))
    elif not errors:
        errors += each("target.name", node, dns_subdomain(node))
    if errors:
        told = [str(error) for error in errors]
        raise ApiError(500, told[0] if len(told) == 1 else f"[{', '.join(told)}]", reason=UNEXPLAINED)
    uid, version = text_at(metadata, "uid") or None, text_at(metadata, "resourceVersion") or None
    notes = fields_at(metadata, "annotations")
    author = services.author()
    write = door.bind(target.key, node, author, expected_uid=uid, expected_version=version, notes=notes)
    await services.write(write, dry_run=writing(query, "CreateOptions").dry_run)
    return HttpAnswer(success(target, None, code=201), 201)


def _small(body: RequestBody, kind: str) -> Manifest:
    form = body_form(body.content_type)
    check_size(body.content, form, most=SMALL_BYTES)
    return read_mapping(body.content, form, kind=kind)


def _options(query: Query, body: RequestBody) -> Mapping[str, Any]:
    """DeleteOptions of the body and the query; what we would have to ignore is refused."""
    options: dict[str, Any] = {}
    if body.content.strip():
        options = _small(body, "DeleteOptions")
        if options.get("kind", "DeleteOptions") != "DeleteOptions":
            told = f'no kind "{str(options["kind"])[:80]}" is registered for version "v1" in scheme "{_SCHEME}"'
            raise ApiError(400, told)
    conditions = options.get("preconditions", {})
    if not isinstance(conditions, dict) or not all(isinstance(it, str) for it in conditions.values()):
        raise ApiError(400, "preconditions: uid and resourceVersion are strings")
    _grace(options, query)
    policy = options.get("propagationPolicy") or query.get("propagationPolicy")
    orphans = options.get("orphanDependents") or query.get("orphanDependents", "false") not in ("", "0", "false")
    at = "propagationPolicy"
    if policy and orphans:
        message = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid_options("DeleteOptions", invalid(at, policy, message))
    if policy and policy not in PROPAGATION:
        raise invalid_options("DeleteOptions", unsupported(at, str(policy)[:80], (*PROPAGATION, "nil")))
    if orphans or policy not in (None, "Background"):
        raise invalid_options("DeleteOptions", unsupported(at, policy or "Orphan", ("Background",)))
    return options


def _grace(options: Mapping[str, Any], query: Query) -> int | None:
    """The seconds that a pod is given to end; None: as many as it asks for itself.

    Who cannot say for how long to wait may not have meant to delete.
    """
    given, in_query = options.get("gracePeriodSeconds"), query.get("gracePeriodSeconds")
    if in_query is not None and not in_query.removeprefix("-").isdecimal():
        raise ApiError(400, f'strconv.ParseInt: parsing "{in_query[:80]}": invalid syntax')
    if given is not None and type(given) is not int:
        raise ApiError(400, "gracePeriodSeconds must be a whole number")
    return given if given is not None or in_query is None else int(in_query)


def _is_dry(query: Query, options: Mapping[str, Any]) -> bool:
    given = options.get("dryRun") or [query.get("dryRun")]
    if not isinstance(given, list) or len(given) != 1 or not isinstance(given[0], str | None):
        raise invalid_options("DeleteOptions", unsupported("dryRun", given, ("All",)))
    return dry_run(given[0], "DeleteOptions")


def _suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(SUFFIX))
