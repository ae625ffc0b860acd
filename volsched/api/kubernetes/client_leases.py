"""Requests that write a Lease. They are read like all objects (`read_handlers`), but cannot be watched."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from volsched.api.kubernetes.bodies import (
    SMALL_BYTES,
    Manifest,
    RequestBody,
    check_size,
    check_types,
    field_warnings,
    fitted,
    patched,
    read_mapping,
    read_value,
)
from volsched.api.kubernetes.negotiation import APPLY_PATCH, HttpAnswer, body_form, patch_form
from volsched.api.kubernetes.queries import Query, write_options
from volsched.api.kubernetes.resources import RequestTarget
from volsched.api.kubernetes.statuses import ApiError, error_of, success
from volsched.api.services import Services
from volsched.kube.manifest_reader import read_manifest
from volsched.kube.meta import KEPT_METADATA
from volsched.kube.problems import Defect, excess
from volsched.kube.validation.rules import creation_errors
from volsched.log.commands import ConflictError
from volsched.log.events.fold import ObjectState, versioned
from volsched.log.leases import client_lease, make_client_lease, remove_client_lease, replace_client_lease
from volsched.objects.rules.object_events import AlreadyExistsError, InvalidError, NotFoundError


def _read(body: RequestBody) -> Manifest:
    """Leases are small: ApiError 413 for a larger body."""
    form = body_form(body.content_type)
    check_size(body.content, form, most=SMALL_BYTES)
    return read_mapping(body.content, form)


async def create_lease(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    options, kind = write_options(query, "CreateOptions"), target.resource.kind
    raw = await services.work(body.heavy, _read, body)
    wanted = fitted(raw, target)
    check_types(kind, wanted)
    warnings = field_warnings(kind, raw, options.validation)
    lease_target = replace(target, name=str(wanted["metadata"].get("name", "")))
    try:
        author, rv = services.author(), services.clock()
        server_fields = {"uid": services.new_uid(), "creationTimestamp": author.now}
        lease = _checked_lease(lease_target, wanted, server_fields)
        exists = await services.read(client_lease, services.database, lease_target.key) is not None
        if not exists and not options.dry_run:
            exists = not await services.read(make_client_lease, services.database, lease_target.key, lease, rv=rv)
        if exists:
            raise AlreadyExistsError(f'Lease "{lease_target.key}" already exists')
    except Exception as error:
        raise error_of(error, lease_target) from error
    return HttpAnswer(versioned(ObjectState(1, rv, lease)), 201, warnings)


async def update_lease(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    raw = await services.work(body.heavy, _read, body)
    wanted = fitted(raw, target)
    check_types(target.resource.kind, wanted)
    return await _change(services, target, query, raw, lambda _: wanted)


async def patch_lease(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    form, kind = patch_form(body.content_type), target.resource.kind
    if form == APPLY_PATCH:
        raise ApiError(415, "leases cannot be applied; patch or update them")
    check_size(body.content, form, most=SMALL_BYTES)
    patch = await services.work(body.heavy, read_value, body.content, form, nulls=True)

    def change(manifest: Manifest) -> Manifest:
        wanted = fitted(patched(manifest, patch, form, kind), target)
        check_types(kind, wanted, manifest)
        return wanted

    return await _change(services, target, query, {}, change)


async def delete_lease(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    options = await services.work(body.heavy, _read, body) if body.content.strip() else {}
    stored = await _stored_lease(services, target)
    stored_metadata = (stored.manifest or {})["metadata"]
    conditions = options.get("preconditions")
    _check_conditions(target, stored, {"metadata": conditions if isinstance(conditions, dict) else {}})
    if not write_options(query, "DeleteOptions").dry_run and not await services.read(
        remove_client_lease, services.database, target.key, expected=stored.rv
    ):
        raise _stale(target)
    return HttpAnswer(success(target, stored_metadata["uid"]))


async def _change(
    services: Services, target: RequestTarget, query: Query, raw: Manifest, change: Callable[[Manifest], Manifest]
) -> HttpAnswer:
    options = write_options(query, "UpdateOptions")
    stored = await _stored_lease(services, target)
    wanted = change(versioned(stored))
    _check_conditions(target, stored, wanted)
    warnings = field_warnings(target.resource.kind, raw, options.validation)
    stored_metadata = (stored.manifest or {})["metadata"]
    lease = _checked_lease(
        target, wanted, {field: stored_metadata[field] for field in KEPT_METADATA if field in stored_metadata}
    )
    # Versions are times: a recreated lease never reuses a version of its predecessor.
    rv = max(services.clock(), stored.rv + 1)
    if not options.dry_run and not await services.read(
        replace_client_lease, services.database, target.key, lease, expected=stored.rv, rv=rv
    ):
        raise _stale(target)
    return HttpAnswer(versioned(ObjectState(1, rv, lease)), 200, warnings)


async def _stored_lease(services: Services, target: RequestTarget) -> ObjectState:
    state = await services.read(client_lease, services.database, target.key)
    if state is None:
        raise NotFoundError(f'Lease "{target.key}" not found')
    return state


def _checked_lease(target: RequestTarget, wanted: Manifest, server_fields: Mapping[str, Any]) -> Manifest:
    manifest, _, defects = read_manifest(target.resource.kind, wanted)
    if errors := defects or creation_errors(target.resource.kind, manifest):
        raise InvalidError("Lease", errors)
    sent_metadata = {
        field: value
        for field, value in manifest["metadata"].items()
        if field not in (*KEPT_METADATA, "resourceVersion")
    }
    lease = {**manifest, "metadata": {**sent_metadata, **server_fields}}
    if (too_much := excess(lease)) is not None:
        raise InvalidError("Lease", [Defect((), too_much)])
    return lease


def _check_conditions(target: RequestTarget, stored: ObjectState, wanted: Mapping[str, Any]) -> None:
    stored_metadata = (stored.manifest or {})["metadata"]
    uid, version = wanted["metadata"].get("uid"), wanted["metadata"].get("resourceVersion")
    if (uid and uid != stored_metadata["uid"]) or (version and version != str(stored.rv)):
        raise _stale(target)


def _stale(target: RequestTarget) -> ConflictError:
    return ConflictError(f'Lease "{target.key}" is at another version; read it again and retry')
