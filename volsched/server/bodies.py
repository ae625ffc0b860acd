"""Bodies: what a client has sent, as an object of the kind and name that its path says, or as a patch."""

from collections.abc import Mapping
from typing import Any

from volsched.events.patch import merged
from volsched.model.documents import read_documents, read_json
from volsched.model.kinds import Kind
from volsched.model.problems import ManifestError
from volsched.server.json_patch import DiffersError, PatchError, json_patched
from volsched.server.known_fields import type_of, unknown_fields, wrong_types
from volsched.server.negotiation import JSON, JSON_PATCH, PROTOBUF, STRATEGIC_PATCH
from volsched.server.paths import Target
from volsched.server.protobuf import read_message
from volsched.server.queries import FieldValidation
from volsched.server.statuses import ApiError
from volsched.server.strategic import strategic_merged

Manifest = dict[str, Any]
SOURCE = "the body of the request"
_DROPPED = ("managedFields", "selfLink")
"""Of an object's metadata: others keep them, we do not."""
_MOST_WARNED = 20


def read_value(body: bytes, form: str, *, nulls: bool = False) -> Any:
    """The one value of a body; ApiError 400 where it cannot be read."""
    if form == PROTOBUF:
        return read_message(body)
    try:
        if form != JSON and not nulls:
            documents = read_documents(body, source=SOURCE)
            if len(documents) != 1:
                raise ApiError(400, f"{SOURCE} holds {len(documents)} documents; send one")
            return documents[0].value
        return read_json(body, source=SOURCE, nulls=nulls)
    except ManifestError as error:
        raise ApiError(400, str(error)) from None


def read_mapping(body: bytes, form: str) -> Manifest:
    value = read_value(body, form)
    if not isinstance(value, dict):
        raise ApiError(400, f"{SOURCE} is not an object")
    return value


def fitted(raw: Mapping[str, Any], target: Target, *, new_suffix: str | None = None) -> Manifest:
    """The object that a body describes, with what the path says about it; ApiError 400 where the two disagree.

    With a suffix it is to be created, and may leave the end of its name to us (`generateName`).
    """
    kind = target.resource.kind
    _check_type(raw, kind)
    metadata = raw.get("metadata", {})
    if not isinstance(metadata, dict):
        raise ApiError(400, "metadata is not a mapping")
    metadata = {field: value for field, value in metadata.items() if field not in _DROPPED}
    if new_suffix is not None and not metadata.get("name") and isinstance(metadata.get("generateName"), str):
        metadata["name"] = metadata["generateName"][: 63 - len(new_suffix)] + new_suffix
    _check_name(metadata, target)
    if kind.namespaced:
        _check_namespace(metadata, target)
        metadata["namespace"] = target.namespace
    return {**raw, "apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}


def _check_type(raw: Mapping[str, Any], kind: Kind) -> None:
    version, name = raw.get("apiVersion") or kind.api_version, raw.get("kind") or kind.name
    if (version, name) != (kind.api_version, kind.name):
        raise ApiError(
            400,
            f"the kind and apiVersion of the object ({str(name)[:80]}, {str(version)[:80]}) do not match those of "
            f"the URL ({kind.name}, {kind.api_version})",
        )


def _check_name(metadata: Manifest, target: Target) -> None:
    if target.name is None:
        if not metadata.get("name"):
            raise ApiError(422, "metadata.name: Required value: name or generateName is required")
    elif not metadata.get("name"):
        metadata["name"] = target.name
    elif metadata["name"] != target.name:
        raise ApiError(
            400,
            f"the name of the object ({str(metadata['name'])[:80]}) does not match the name on the URL "
            f"({target.name})",
        )


def _check_namespace(metadata: Manifest, target: Target) -> None:
    if metadata.get("namespace") not in (None, "", target.namespace):
        raise ApiError(
            400, "the namespace of the provided object does not match the namespace sent on the request"
        )


def patched(manifest: Mapping[str, Any], patch: Any, form: str, kind: Kind) -> Manifest:
    """The object after the patch; ApiError 400 or 422 where the patch cannot be applied."""
    try:
        if form == JSON_PATCH:
            result = json_patched(manifest, patch)
        elif not isinstance(patch, dict):
            raise PatchError("a merge patch is an object")
        elif form == STRATEGIC_PATCH:
            result = strategic_merged(manifest, patch, type_of(kind))
        else:
            result = merged(manifest, patch)
    except DiffersError as error:
        raise ApiError(422, f"the server rejected our request due to an error in our request: {error}") from None
    except PatchError as error:
        # A patch that is one, but leads nowhere in this object, is told from one that is none.
        code = 422 if form == JSON_PATCH and isinstance(patch, list) else 400
        raise ApiError(code, f"the patch cannot be applied: {error}") from None
    if not isinstance(result, dict):
        raise ApiError(422, "the patch would leave something that is no object")
    return dict(_without_nulls(result))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    # A null in a list is left, to be refused by name.
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def check_types(kind: Kind, manifest: Mapping[str, Any], known: Mapping[str, Any] | None = None) -> None:
    """ApiError 400 where a field holds what it cannot, unless it did before."""
    found = wrong_types(kind, manifest)
    before = wrong_types(kind, known) if found and known else []
    told = [it for it in found if it not in before]
    if told:
        raise ApiError(400, _undecoded(kind, "; ".join(told[:_MOST_WARNED])))


def _undecoded(kind: Kind, why: str) -> str:
    return (
        f'{kind.name} in version "{kind.api_version.rpartition("/")[2]}" cannot be handled as a {kind.name}: {why}'
    )


def field_warnings(
    kind: Kind, manifest: Mapping[str, Any], validation: FieldValidation, known: Mapping[str, Any] | None = None
) -> list[str]:
    """What to warn of; ApiError 400 under Strict. Unknown fields that the object has already are let be."""
    if validation is FieldValidation.IGNORE:
        return []
    before = set(unknown_fields(kind, known)) if known else set()
    found = [f'unknown field "{field}"' for field in unknown_fields(kind, manifest) if field not in before]
    if found and validation is FieldValidation.STRICT:
        raise ApiError(400, _undecoded(kind, f"strict decoding error: {', '.join(found[:_MOST_WARNED])}"))
    return found[:_MOST_WARNED]
