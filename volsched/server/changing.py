"""Requests that write: create, update, patch, delete, and the binding of a pod."""

import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from volsched.server.answers import Answer
from volsched.server.bodies import Manifest, check_types, field_warnings, fitted, patched, read_mapping, read_value
from volsched.server.negotiation import body_form, patch_form
from volsched.server.paths import Target
from volsched.server.queries import Listing, Query, dry_run, selection, writing
from volsched.server.reading import read_page
from volsched.server.resources import STATUS
from volsched.server.services import Services
from volsched.server.statuses import ApiError, error_of, success
from volsched.server.tables import object_list
from volsched.server.writing import (
    NOTHING_TO_SEE,
    asks_store,
    binding,
    creating,
    deleting,
    look_up,
    patching,
    updating,
)

SUFFIX = 5
_SUFFIX_LETTERS = string.ascii_lowercase + string.digits
ANSWERED_WITH_STATUS = frozenset({"Node", "Namespace", "Event", "StatefulSet", "CSIStorageCapacity"})
"""Kinds whose deletion Kubernetes answers with a Status once they are gone; of the others, with what they were."""


@dataclass(frozen=True, slots=True)
class Body:
    content: bytes
    content_type: str | None


async def create(services: Services, target: Target, query: Query, body: Body) -> Answer:
    asked = writing(query)
    raw = read_mapping(body.content, body_form(body.content_type))
    manifest = fitted(raw, target, new_suffix=_suffix())
    check_types(target.resource.kind, manifest)
    if manifest["metadata"].get("resourceVersion", "0") not in ("", "0"):
        # Whoever says one means an object that is there.
        raise ApiError(400, "resourceVersion should not be set on objects to be created")
    warnings = field_warnings(target.resource.kind, raw, asked.validation)
    named = replace(target, name=str(manifest["metadata"]["name"]))
    try:
        seen, upgrade = NOTHING_TO_SEE, services.zonal_upgrade
        if asks_store(named, manifest, zonal_upgrade=upgrade):
            seen = await services.read(look_up, services.database, named, manifest, zonal_upgrade=upgrade)
        write = creating(named, manifest, services.who(), uid=services.new_uid(), seen=seen)
        written = await services.write(write, dry_run=asked.dry_run)
    except Exception as error:
        raise error_of(error, named) from error
    return Answer(written.manifest, 201, warnings)


async def update(services: Services, target: Target, query: Query, body: Body) -> Answer:
    asked = writing(query)
    raw = read_mapping(body.content, body_form(body.content_type))
    manifest = fitted(raw, target)
    check_types(target.resource.kind, manifest)
    warnings = field_warnings(target.resource.kind, raw, asked.validation)
    write = updating(target, manifest, services.who(), status=target.subresource == STATUS)
    written = await services.write(write, dry_run=asked.dry_run)
    return Answer(written.manifest, 200, warnings)


async def patch(services: Services, target: Target, query: Query, body: Body) -> Answer:
    asked, form = writing(query), patch_form(body.content_type)
    given = read_value(body.content, form, nulls=True)
    kind = target.resource.kind
    warnings: list[str] = []

    def change(manifest: Manifest) -> Manifest:
        wanted = fitted(patched(manifest, given, form, kind), target)
        check_types(kind, wanted, manifest)
        warnings[:] = field_warnings(kind, wanted, asked.validation, manifest)
        return wanted

    write = patching(target, change, services.who(), status=target.subresource == STATUS)
    written = await services.write(write, dry_run=asked.dry_run)
    return Answer(written.manifest, 200, warnings)


async def delete(services: Services, target: Target, query: Query, body: Body) -> Answer:
    options = _options(query, body)
    conditions = options.get("preconditions", {})
    uid, version = conditions.get("uid"), conditions.get("resourceVersion")
    grace = _grace(options, query)
    write = deleting(target, services.who(), uid=uid, version=version, grace=grace)
    written = await services.write(write, dry_run=_is_dry(query, options))
    if written.gone and target.resource.kind.name in ANSWERED_WITH_STATUS:
        return Answer(success(target, written.manifest["metadata"].get("uid")))
    return Answer(written.manifest)


async def delete_collection(services: Services, target: Target, query: Query, body: Body) -> Answer:
    options = _options(query, body)
    asked = Listing(selection=selection(query, target.resource))
    found = await services.read(read_page, services.database, target, asked, now=services.clock())
    deleted: list[Manifest] = []
    for item in found.items:
        metadata = item.manifest["metadata"]
        one = replace(target, namespace=metadata.get("namespace"), name=metadata["name"])
        write = deleting(one, services.who(), uid=metadata.get("uid"), grace=_grace(options, query))
        try:
            deleted.append((await services.write(write, dry_run=_is_dry(query, options))).manifest)
        except Exception as error:
            told = error_of(error, one)
            # Gone already, or another one by now: it was not for us to delete.
            if told.code not in (404, 409):
                raise told from error
    return Answer(object_list(target.resource, deleted, {"resourceVersion": str(found.position)}))


async def bind(services: Services, target: Target, query: Query, body: Body) -> Answer:
    raw = read_mapping(body.content, body_form(body.content_type))
    named, metadata = raw.get("target"), raw.get("metadata", {})
    if not isinstance(named, dict) or not isinstance(metadata, dict) or raw.get("kind", "Binding") != "Binding":
        raise ApiError(400, "the body is not a Binding with a target")
    if metadata.get("name") not in (None, "", target.name):
        raise ApiError(400, f"the name of the binding does not match the name on the URL ({target.name})")
    node = named.get("name")
    if named.get("kind", "Node") != "Node" or not isinstance(node, str) or not node:
        raise ApiError(422, "target: a pod is bound to a Node, by its name")
    uid = metadata.get("uid")
    write = binding(target, node, services.who(), uid=uid if isinstance(uid, str) else None)
    await services.write(write, dry_run=writing(query).dry_run)
    return Answer(success(target, None, code=201), 201)


def _options(query: Query, body: Body) -> Mapping[str, Any]:
    """DeleteOptions of the body and the query; what we would have to ignore is refused."""
    options: dict[str, Any] = {}
    if body.content.strip():
        options = read_mapping(body.content, body_form(body.content_type))
        if options.get("kind", "DeleteOptions") != "DeleteOptions":
            raise ApiError(400, "the body is not DeleteOptions")
    conditions = options.get("preconditions", {})
    if not isinstance(conditions, dict) or not all(isinstance(it, str) for it in conditions.values()):
        raise ApiError(400, "preconditions: uid and resourceVersion are strings")
    _grace(options, query)
    policy = options.get("propagationPolicy") or query.get("propagationPolicy") or "Background"
    orphans = options.get("orphanDependents") or query.get("orphanDependents", "false") not in ("", "0", "false")
    if policy != "Background" or orphans:
        raise ApiError(
            422, f'propagationPolicy: Unsupported value: "{str(policy)[:80]}": supported values: "Background"'
        )
    return options


def _grace(options: Mapping[str, Any], query: Query) -> int | None:
    """The seconds that a pod is given to end; None: as many as it asks for itself."""
    given, in_query = options.get("gracePeriodSeconds"), query.get("gracePeriodSeconds")
    readable = in_query is None or in_query.removeprefix("-").isdecimal()
    if not readable or (given is not None and type(given) is not int):
        raise ApiError(400, "gracePeriodSeconds must be a whole number")
    return given if given is not None or in_query is None else int(in_query)


def _is_dry(query: Query, options: Mapping[str, Any]) -> bool:
    given = options.get("dryRun") or [query.get("dryRun")]
    if not isinstance(given, list) or len(given) != 1 or not isinstance(given[0], str | None):
        raise ApiError(422, 'dryRun: supported values: ["All"]')
    return dry_run(given[0])


def _suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(SUFFIX))
