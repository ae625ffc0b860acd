"""What stands behind the question mark of a request, read and judged."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import orjson

from volsched.model.selector_text import SelectorTextError, parse_label_selector
from volsched.model.selectors import LabelSelector, label_selector_matches
from volsched.server.field_selectors import FieldSelector, fields_match, parse_field_selector, selected_name
from volsched.server.resources import Resource
from volsched.server.statuses import ApiError

Query = Mapping[str, str]
_TRUE, _FALSE = ("true", "1", "t", "True", "TRUE", ""), ("false", "0", "f", "False", "FALSE")
LARGEST = 2**63 - 1


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
class Watching:
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
    chosen, limit = selection(query, resource), _number(query, "limit")
    position, match = _version(query), _match(query)
    if token := query.get("continue"):
        if position:
            raise ApiError(400, "specifying resourceVersion is not allowed when using continue")
        position, after = read_token(token)
        return Listing(selection=chosen, limit=limit or None, position=position, match=Match.EXACT, after=after)
    if match is not None and position is None:
        raise ApiError(400, "resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match is Match.EXACT and not position:
        raise ApiError(400, 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
    return Listing(selection=chosen, limit=limit or None, position=position or None, match=match)


def watching(query: Query, resource: Resource) -> Watching:
    if query.get("continue"):
        raise ApiError(400, "continue is forbidden for watch")
    initial = "sendInitialEvents" in query and _flag(query, "sendInitialEvents")
    if initial and _match(query) is not Match.NOT_OLDER:
        raise ApiError(400, "sendInitialEvents requires resourceVersionMatch=NotOlderThan")
    return Watching(
        selection=selection(query, resource),
        position=_version(query) or None,
        bookmarks="allowWatchBookmarks" in query and _flag(query, "allowWatchBookmarks"),
        send_initial=initial,
        timeout_seconds=_number(query, "timeoutSeconds") or None,
    )


def least_version(query: Query) -> int | None:
    """The version that a single object is asked to be read at or after."""
    return _version(query) or None


def writing(query: Query) -> Writing:
    given = query.get("fieldValidation") or FieldValidation.WARN
    if given not in tuple(FieldValidation):
        choices = ", ".join(FieldValidation)
        raise ApiError(422, f'fieldValidation: Unsupported value: "{given}": supported values: {choices}')
    return Writing(dry_run(query.get("dryRun")), FieldValidation(given))


def dry_run(given: str | None) -> bool:
    if not given:
        return False
    if given != "All":
        raise ApiError(422, f'dryRun: Unsupported value: "{given}": supported values: "All"')
    return True


def selection(query: Query, resource: Resource) -> Selection:
    labels = None
    if text := query.get("labelSelector", "").strip():
        try:
            labels = parse_label_selector(text)
        except SelectorTextError as error:
            raise ApiError(400, f"unable to parse labelSelector: {error}") from None
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
        raise ApiError(400, "continue key is not valid; list again without it")
    return position, after


def _is_key(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _version(query: Query) -> int | None:
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > LARGEST or len(text) > 19:
        raise ApiError(400, f'Invalid value: "{text[:80]}": resourceVersion is not a version of this server')
    return int(text)


def _match(query: Query) -> Match | None:
    text = query.get("resourceVersionMatch", "")
    if text and text not in tuple(Match):
        raise ApiError(400, f'resourceVersionMatch: Unsupported value: "{text[:80]}": use {" or ".join(Match)}')
    return Match(text) if text else None


def _number(query: Query, name: str) -> int:
    text = query.get(name, "") or "0"
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ApiError(400, f'{name}: Invalid value: "{text[:80]}": must be a whole number that is not negative')
    return int(text)


def _flag(query: Query, name: str) -> bool:
    text = query[name]
    if text not in (*_TRUE, *_FALSE):
        raise ApiError(400, f'{name}: Invalid value: "{text[:80]}": must be true or false')
    return text in _TRUE
