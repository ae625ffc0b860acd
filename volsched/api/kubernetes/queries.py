"""What stands behind the question mark of a request, read and judged."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import orjson

from volsched.api.kubernetes.field_selectors import (
    FieldSelector,
    fields_match,
    parse_field_selector,
    selected_name,
)
from volsched.api.kubernetes.label_selectors import parse_label_selector
from volsched.api.kubernetes.resources import Resource
from volsched.api.kubernetes.statuses import UNEXPLAINED, ApiError, invalid_options
from volsched.kube.selectors import LabelSelector, label_selector_matches
from volsched.kube.validation.field_errors import FieldError, forbidden, invalid, too_long, unsupported

Query = Mapping[str, str]
_FALSE = ("false", "0")
LARGEST = 2**63 - 1
MANAGER_MAX = 128


class Match(StrEnum):
    """What a list's resourceVersion means."""

    NOT_OLDER = "NotOlderThan"
    EXACT = "Exact"


class FieldValidation(StrEnum):
    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a collection are meant."""

    labels: LabelSelector | None = None
    fields: FieldSelector = ()

    @property
    def everything(self) -> bool:
        return self.labels is None and not self.fields

    @property
    def name(self) -> str | None:
        return selected_name(self.fields)

    def matches(self, manifest: Mapping[str, object]) -> bool:
        if self.everything:
            return True
        metadata = manifest.get("metadata")
        labels = (metadata.get("labels") if isinstance(metadata, Mapping) else None) or {}
        selected = self.labels is None or label_selector_matches(self.labels, labels)
        return selected and fields_match(self.fields, manifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    selection: Selection
    limit: int | None = None
    position: int | None = None
    """The resourceVersion that was asked for, or that the first page had."""
    match: Match | None = None
    after: str = ""
    """The key behind which this page begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    selection: Selection
    position: int | None = None
    """None: from what is there now, which is sent first."""
    bookmarks: bool = False
    send_initial: bool = False
    timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Writing:
    dry_run: bool
    validation: FieldValidation


def is_watch(query: Query) -> bool:
    return "watch" in query and _flag(query, "watch")


def listing(query: Query, resource: Resource) -> Listing:
    chosen, limit = selection(query, resource), max(_number(query, "limit"), 0)
    _number(query, "timeoutSeconds")
    _check_list_options(query, watch=False)
    position = _version(query)
    if token := query.get("continue"):
        first, after = read_token(token)
        if position:
            raise ApiError(400, "specifying resource version is not allowed when using continue")
        return Listing(selection=chosen, limit=limit or None, position=first, match=Match.EXACT, after=after)
    match = Match(query["resourceVersionMatch"]) if query.get("resourceVersionMatch") else None
    return Listing(selection=chosen, limit=limit or None, position=position or None, match=match)


def watching(query: Query, resource: Resource) -> WatchRequest:
    _check_list_options(query, watch=True)
    return WatchRequest(
        selection=selection(query, resource),
        position=_version(query, single=True) or None,
        bookmarks="allowWatchBookmarks" in query and _flag(query, "allowWatchBookmarks"),
        send_initial="sendInitialEvents" in query and _flag(query, "sendInitialEvents"),
        timeout_seconds=max(_number(query, "timeoutSeconds"), 0) or None,
    )


def _check_list_options(query: Query, *, watch: bool) -> None:
    """Which options go together, as Kubernetes has it; ApiError 422."""
    at, found = "resourceVersionMatch", list[FieldError]()
    match, version = query.get(at, ""), query.get("resourceVersion", "")
    initial = "sendInitialEvents" in query
    if watch:
        if match and not initial:
            found.append(forbidden(at, f"{at} is forbidden for watch unless sendInitialEvents is provided"))
        elif initial and match != Match.NOT_OLDER:
            found.append(forbidden(at, f"sendInitialEvents requires setting {at} to NotOlderThan"))
        if query.get("continue"):
            found.append(forbidden("continue", "continue is forbidden for watch"))
    else:
        if match and not version:
            found.append(forbidden(at, f"{at} is forbidden unless resourceVersion is provided"))
        if match and query.get("continue"):
            found.append(forbidden(at, f"{at} is forbidden when continue is provided"))
        if match and match not in tuple(Match):
            found.append(unsupported(at, match[:80], (*sorted(Match), "")))
        if match == Match.EXACT and version == "0":
            found.append(forbidden(at, f'{at} "exact" is forbidden for resourceVersion "0"'))
        if initial:
            found.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if found:
        raise invalid_options("ListOptions", *found)


def least_version(query: Query) -> int | None:
    """The version that a single object is asked to be read at or after."""
    return _version(query, single=True) or None


def writing(query: Query, options: str) -> Writing:
    """`options` is what Kubernetes calls them: CreateOptions, UpdateOptions or PatchOptions."""
    given = query.get("fieldValidation") or FieldValidation.WARN
    found: list[FieldError] = []
    if options == "PatchOptions" and "force" in query:
        found.append(forbidden("force", "may not be specified for non-apply patch"))
    if len(query.get("fieldManager", "").encode()) > MANAGER_MAX:
        found.append(too_long("fieldManager", MANAGER_MAX))
    if given not in tuple(FieldValidation):
        found.append(unsupported("fieldValidation", given[:80], ("", *sorted(FieldValidation))))
    if found:
        raise invalid_options(options, *found)
    return Writing(dry_run(query.get("dryRun"), options), FieldValidation(given))


def dry_run(given: str | None, options: str) -> bool:
    if not given:
        return False
    if given != "All":
        raise invalid_options(options, unsupported("dryRun", [given[:80]], ("All",)))
    return True


def selection(query: Query, resource: Resource) -> Selection:
    labels = None
    if text := query.get("labelSelector", "").strip():
        labels = parse_label_selector(text)
    return Selection(labels, parse_field_selector(query.get("fieldSelector", ""), resource))


def token(position: int, after: str) -> str:
    """Where a list goes on: what the first page was read at, and the last key that was given out."""
    return base64.urlsafe_b64encode(orjson.dumps([position, after])).decode().rstrip("=")


def read_token(text: str) -> tuple[int, str]:
    try:
        read = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        position, after = read
    except (ValueError, TypeError, binascii.Error):
        position, after = None, None
    if type(position) is not int or not 0 <= position <= LARGEST or not _is_key(after):
        raise ApiError(400, "invalid continue token: continue key is not valid: list again without it")
    return position, after


def _is_key(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _version(query: Query, *, single: bool = False) -> int | None:
    """`single`: of one object, or of a watch; Kubernetes answers 500 there to what it calls invalid in a list."""
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if (text.isascii() and text.isdecimal()) and len(text) <= 19 and int(text) <= LARGEST:
        return int(text)
    error = invalid("resourceVersion", text[:80], f'strconv.ParseUint: parsing "{text[:80]}": invalid syntax')
    if single:
        raise ApiError(500, str(error), reason=UNEXPLAINED)
    raise ApiError(400, f"invalid resource version: {error}")


def _number(query: Query, name: str) -> int:
    text = query.get(name, "") or "0"
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 19):
        raise ApiError(400, f'strconv.ParseInt: parsing "{text[:80]}": invalid syntax')
    return int(text)


def _flag(query: Query, name: str) -> bool:
    return query[name].lower() not in _FALSE
