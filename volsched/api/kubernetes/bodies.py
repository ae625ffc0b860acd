"""Bodies: a client's input as an object of its path's kind and name, or as a patch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from volsched.api.kubernetes.negotiation import (
    JSON,
    JSON_PATCH,
    PATCHES,
    PROTOBUF,
    STRATEGIC_PATCH,
    YAML,
    media_type,
)
from volsched.api.kubernetes.protobuf import read_message
from volsched.api.kubernetes.queries import FieldValidation
from volsched.api.kubernetes.resources import RequestTarget
from volsched.api.kubernetes.statuses import UNEXPLAINED, ApiError, invalid_object
from volsched.kube.documents import drop_nulls, read_documents, read_json
from volsched.kube.kinds import KINDS, Kind
from volsched.kube.known_fields import json_type, type_of
from volsched.kube.meta import without_bookkeeping
from volsched.kube.patches import PatchError, json_patched, merged
from volsched.kube.problems import ITEMS_MAX, ManifestError, longest
from volsched.kube.strategic_merge import RepeatedError, strategic_merged
from volsched.kube.validation.field_errors import invalid
from volsched.objects.rules.field_check import (
    MOST_NAMED,
    UndecodableError,
    new_unknown_fields,
    strict_error,
    wrong_type,
)

Manifest = dict[str, Any]
LIGHT_BYTES = {JSON: 2**14, PROTOBUF: 2**14}
"""Parsed in the event loop, because that takes less than starting a thread; other formats never."""
MOST_BYTES = {YAML: 2**19}
"""Limits of formats that are slow to parse, such as YAML. All others have the limit of a request."""
MOST_HOLDERS = 2**17
"""Lists and mappings of a JSON body: each takes a hundred bytes of memory, and two in the body."""
SMALL_BYTES = 2**16
"""The limit of small messages: reviews, bindings, options."""
SOURCE = "the body of the request"
_MOST_SHOWN = 30
_SCHEME = "pkg/api/legacyscheme/scheme.go:30"
"""Kubernetes names the place in its own source; clients do not compare it, but people search for it."""
REJECTED = "the server rejected our request due to an error in our request"
"""Sent without details: so clients distinguish a JSON patch that cannot be applied from an invalid object."""


@dataclass(frozen=True, slots=True)
class RequestBody:
    content: bytes
    content_type: str | None
    agent: str = ""
    """The client's user agent."""

    @property
    def heavy(self) -> bool:
        """Parsing and checking it would noticeably block other requests."""
        media = JSON if not self.content_type else media_type(self.content_type)[0]
        return len(self.content) > LIGHT_BYTES.get(JSON if media in PATCHES else media, 0)


def check_size(content: bytes, form: str, *, most: int | None = None) -> None:
    """ApiError 413 where a body of that format exceeds its limit, or `most`."""
    limit = min(MOST_BYTES.get(form, len(content)), len(content) if most is None else most)
    if len(content) > limit:
        hint = "; send it as JSON" if form == YAML and most is None else ""
        raise ApiError(413, f"Request entity too large: limit is {limit}{hint}")


def read_value(body: bytes, form: str, *, nulls: bool = False) -> Any:
    """The one value of a body; ApiError 400 where it cannot be read, 413 where it holds too much."""
    check_size(body, form)
    # Brackets inside strings count too: they are counted before the body is parsed.
    if body.count(b"[") + body.count(b"{") > MOST_HOLDERS:
        raise ApiError(413, f"{SOURCE} holds more than {MOST_HOLDERS} lists and mappings")
    value = _value(body, form, nulls=nulls)
    if longest(value) > ITEMS_MAX:
        raise ApiError(413, f"{SOURCE} holds a list or mapping of more than {ITEMS_MAX} items")
    return value


def _value(body: bytes, form: str, *, nulls: bool) -> Any:
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


def read_mapping(body: bytes, form: str, *, kind: str | None = None) -> Manifest:
    """The object of a body; `kind`: one of Kubernetes' own, which has its own messages for unreadable input."""
    try:
        value = read_value(body, form)
    except ApiError as error:
        if kind is None or form == PROTOBUF or error.code == 413:
            raise
        why = "unexpected end of JSON input" if _is_cut(body) else str(error)
        raise ApiError(400, _unrecognized_message(kind, why, body)) from None
    if not isinstance(value, dict):
        if kind is None:
            raise ApiError(400, f"{SOURCE} is not an object")
        go_type = (
            'Go value of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
            'Kind string "json:\\"kind,omitempty\\"" }'
        )
        raise ApiError(
            400, _unrecognized_message(kind, f"json: cannot unmarshal {json_type(value)} into {go_type}", body)
        )
    return value


def read_patch(body: bytes, form: str) -> Any:
    try:
        value = read_value(body, form, nulls=True)
    except ApiError as error:
        if error.code == 413:
            raise
        raise ApiError(400, "invalid JSON patch" if _is_cut(body) else f"error decoding patch: {error}") from None
    expected = (list, "[]handlers.jsonPatchOp") if form == JSON_PATCH else (dict, "map[string]interface {}")
    if not isinstance(value, expected[0]):
        problem = f"json: cannot unmarshal {json_type(value)} into Go value of type {expected[1]}"
        raise ApiError(400, f"error decoding patch: {problem}")
    return value


def applied_manifest(body: RequestBody, target: RequestTarget) -> Manifest:
    """The fields that a server-side apply names."""
    try:
        value = read_value(body.content, JSON if body.content[:1] == b"{" else YAML)
    except ApiError as error:
        if error.code == 413:
            raise
        raise ApiError(400, f"error decoding patch: {error}") from None
    if not isinstance(value, dict):
        problem = f"json: cannot unmarshal {json_type(value)} into Go value of type map[string]interface {{}}"
        raise ApiError(400, f"error decoding patch: error unmarshaling JSON: while decoding JSON: {problem}")
    kind, version = target.resource.kind, str(value.get("apiVersion") or "")
    if (version, value.get("kind")) != (kind.api_version, kind.name):
        group, _, short = version.rpartition("/")
        raise ApiError(400, f"invalid object type: {group}/{short}, Kind={value.get('kind') or ''}")
    if "managedFields" in (value.get("metadata") or {}):
        raise ApiError(400, "metadata.managedFields must be nil")
    manifest = fitted(value, target)
    check_types(kind, manifest)
    return {**manifest, "metadata": {key: it for key, it in manifest["metadata"].items() if it != ""}}


def _is_cut(body: bytes) -> bool:
    """Whether the body ends before its value does."""
    text = body.decode(errors="replace").strip()
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text) or error.msg.startswith("Unterminated") or text in ("", "{", "[")
    except (RecursionError, ValueError):
        return False
    return False


def _unrecognized_message(kind: str, why: str, body: bytes) -> str:
    text = body[:_MOST_SHOWN].decode(errors="replace") if body[:1] == b"{" else body[:_MOST_SHOWN].hex()
    shown = (text or "<empty>") + (" ..." if len(body) > _MOST_SHOWN else "")
    return (
        f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
        f"json parse error: {why} ({shown})"
    )


def fitted(raw: Mapping[str, Any], target: RequestTarget, *, new_suffix: str | None = None) -> Manifest:
    """The object of a body, completed from the path; ApiError 400 where the two disagree.

    With a suffix, the object is to be created; `generateName` gets the suffix where there is no name.
    """
    kind = target.resource.kind
    _check_type(raw, kind)
    metadata = raw.get("metadata", {})
    if not isinstance(metadata, dict):
        raise ApiError(400, "metadata is not a mapping")
    metadata = without_bookkeeping(metadata)
    if new_suffix is not None and not metadata.get("name") and isinstance(metadata.get("generateName"), str):
        metadata["name"] = metadata["generateName"][: 63 - len(new_suffix)] + new_suffix
    _check_name(metadata, target)
    if kind.namespaced:
        _check_namespace(metadata, target)
        metadata["namespace"] = target.namespace
    else:
        # Dropped, as Kubernetes does. In a manifest file it is refused, because its author has written it there.
        metadata.pop("namespace", None)
    return {**raw, "apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}


def _check_type(raw: Mapping[str, Any], kind: Kind) -> None:
    check_kind(raw, kind.name, kind.api_version, served=kind.name)


def check_kind(
    raw: Mapping[str, Any], name: str, api_version: str, *, served: str, group: str | None = None
) -> None:
    """ApiError 400 where a body declares another kind; it need not declare any. `group`: that of `served`, where
    it is not the group of `api_version`."""
    sent_kind, sent_version = str(raw.get("kind") or name)[:80], str(raw.get("apiVersion") or api_version)[:80]
    if (sent_version, sent_kind) == (api_version, name):
        return
    short = sent_version.rpartition("/")[2]
    known = sent_kind in KINDS and KINDS[sent_kind].api_version == sent_version
    if known:
        group = group or api_version.rpartition("/")[0].split(".")[0] or "core"
        why = f"converting ({short}.{sent_kind}) to ({group}.{served}): unknown conversion"
    else:
        why = f'no kind "{sent_kind}" is registered for version "{sent_version}" in scheme "{_SCHEME}"'
    raise ApiError(400, f'{sent_kind} in version "{short}" cannot be handled as a {served}: {why}')


def _check_name(metadata: Manifest, target: RequestTarget) -> None:
    if target.name is None:
        return
    if not metadata.get("name"):
        raise ApiError(
            400,
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided",
        )
    if metadata["name"] != target.name:
        raise ApiError(
            400,
            f"the name of the object ({str(metadata['name'])[:80]}) does not match the name on the URL "
            f"({target.name})",
        )


def _check_namespace(metadata: Manifest, target: RequestTarget) -> None:
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
    except RepeatedError as error:
        raise ApiError(413, str(error)) from None
    except PatchError as error:
        # A valid patch that does not fit this object is distinguished from an invalid one.
        if form == JSON_PATCH and isinstance(patch, list):
            raise ApiError(422, REJECTED) from error
        raise ApiError(500 if form == STRATEGIC_PATCH else 400, str(error), reason=UNEXPLAINED) from None
    if not isinstance(result, dict):
        raise ApiError(422, "the result of the patch is not an object")
    # A null in a list is kept, to be refused by name.
    return dict(drop_nulls(result))


def check_patched_kind(kind: Kind, manifest: Mapping[str, Any], shown: Any) -> None:
    """ApiError 422 where a patch would change an object's kind."""
    try:
        _check_type(manifest, kind)
    except ApiError as error:
        raise _patch_error(str(error), shown) from None


def check_types(
    kind: Kind, manifest: Mapping[str, Any], known: Mapping[str, Any] | None = None, *, shown: Any = None
) -> None:
    """ApiError for a value of the wrong type, unless the object had it before: 400, or 422 after a patch."""
    why = wrong_type(kind, manifest, known)
    if why is not None:
        raise _decoding_error(kind, why) if known is None else _patch_error(why, shown)


def field_warnings(
    kind: Kind,
    manifest: Mapping[str, Any],
    validation: FieldValidation,
    known: Mapping[str, Any] | None = None,
    *,
    shown: Any = None,
) -> list[str]:
    """The warnings; ApiError under Strict. Unknown fields that the object has already are accepted."""
    if validation is FieldValidation.IGNORE:
        return []
    unknown = new_unknown_fields(kind, manifest, known)
    if unknown and validation is FieldValidation.STRICT:
        why = strict_error(unknown)
        raise _decoding_error(kind, why) if known is None else _patch_error(why, shown)
    return unknown[:MOST_NAMED]


def _decoding_error(kind: Kind, why: str) -> ApiError:
    return ApiError(400, str(UndecodableError(kind, why)))


def _patch_error(why: str, shown: Any) -> ApiError:
    """`shown`: what Kubernetes shows of it, the patched object or the patch itself."""
    text = shown if isinstance(shown, str) else orjson.dumps(shown).decode()
    return invalid_object("", "", [invalid("patch", text, why)], {})
