"""The query of a request, with its label and field selectors, parsed and checked."""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import orjson

from volsched.api.kubernetes.resources import Resource
from volsched.api.kubernetes.statuses import UNEXPLAINED, ApiError, invalid_options
from volsched.kube.field_selectors import FieldSelector, FieldSelectorError, field_terms, fields_match
from volsched.kube.selectors import LabelSelector, Requirement, label_selector_matches
from volsched.kube.validation.field_errors import (
    FieldError,
    each,
    forbidden,
    invalid,
    label_value,
    qualified_name,
    required,
    too_long,
    unsupported,
)

# Field selectors: `spec.nodeName=n1,status.phase!=Failed`. Only the fields that Kubernetes can select by.

_NAMES = ("metadata.name", "metadata.namespace")
_EVENT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
SELECTABLE: Mapping[str, tuple[str, ...]] = {
    "Pod": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "Node": ("spec.unschedulable",),
    "Namespace": ("status.phase",),
    "Event": (
        *(f"involvedObject.{field}" for field in _EVENT),
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}


def parse_field_selector(text: str, resource: Resource) -> FieldSelector:
    """All terms must hold; ApiError 400 where it cannot be parsed, or names an unsupported field."""
    try:
        terms = field_terms(text)
    except FieldSelectorError as error:
        raise ApiError(400, str(error)) from None
    for term in terms:
        if term.field not in _NAMES and term.field not in SELECTABLE.get(resource.kind.name, ()):
            raise _unknown_field(term.field, resource)
    return terms


def _unknown_field(field: str, resource: Resource) -> ApiError:
    """Kubernetes has one message for kinds with selectable fields and another for those without."""
    if resource.kind.name in SELECTABLE:
        return ApiError(400, f"field label not supported: {field}")
    only = ", ".join(f'"{name}"' for name in _NAMES)
    return ApiError(400, f'"{field}" is not a known field selector: only {only}')


def selected_name(selector: FieldSelector) -> str | None:
    """The one name that can match, if the selector has it: kubectl watches single objects in this way."""
    return next((it.value for it in selector if it.field == "metadata.name" and it.equal), None)


# Label selectors of requests, parsed as Kubernetes parses them: token by token, with its error messages.

_TOKEN = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_SYMBOLS = frozenset({"==", "!=", "=", "!", "<", ">", "(", ")", ","})
_OPERATORS = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}
_END = ""
UNREADABLE = "unable to parse requirement: "


def parse_label_selector(text: str) -> LabelSelector:
    """All parts must hold; ApiError 400."""
    return LabelSelector(match_expressions=tuple(_Parser(_tokens(text)).requirements()))


def _tokens(text: str) -> list[str]:
    return [*_TOKEN.findall(text), _END]


def _is_name(token: str) -> bool:
    return token not in _SYMBOLS and token != _END


@dataclass(slots=True)
class _Parser:
    tokens: list[str]
    place: int = 0

    def requirements(self) -> list[Requirement]:
        terms: list[Requirement] = []
        while self._next != _END:
            if self._next != "!" and not _is_name(self._next):
                raise ApiError(400, f"found '{self._next}', expected: !, identifier, or 'end of string'")
            terms.append(self._requirement())
            token = self._take()
            if token == _END:
                break
            if token != ",":
                raise ApiError(400, f"found '{token}', expected: ',' or 'end of string'")
            if self._next != "!" and not _is_name(self._next):
                raise ApiError(400, f"found '{self._next}', expected: identifier after ','")
        return terms

    @property
    def _next(self) -> str:
        return self.tokens[self.place]

    def _take(self) -> str:
        token = self.tokens[self.place]
        self.place = min(self.place + 1, len(self.tokens) - 1)
        return token

    def _requirement(self) -> Requirement:
        absent = self._next == "!" and bool(self._take())
        key = self._take()
        if not _is_name(key):
            raise ApiError(400, f"{UNREADABLE}found '{key}', expected: identifier")
        for error in each("<nil>", key, qualified_name(key)):
            raise ApiError(400, f"{UNREADABLE}{error}")
        if absent:
            return Requirement(key, "DoesNotExist")
        if self._next in (_END, ","):
            return Requirement(key, "Exists")
        operator = self._take()
        if operator not in _OPERATORS:
            message = f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt"
            raise ApiError(400, f"{UNREADABLE}{message}")
        values = self._values() if operator in ("in", "notin") else [self._value()]
        for index, value in enumerate(sorted(set(values))):
            for error in each(f"values[{index}][{key}]", value, label_value(value)):
                raise ApiError(400, f"{UNREADABLE}{error}")
        return Requirement(key, _OPERATORS[operator], tuple(values))

    def _value(self) -> str:
        if self._next in (_END, ","):
            return ""
        value = self._take()
        if not _is_name(value):
            raise ApiError(400, f"{UNREADABLE}found '{value}', expected: identifier")
        return value

    def _values(self) -> list[str]:
        opening = self._take()
        if opening != "(":
            raise ApiError(400, f"{UNREADABLE}found '{opening}' expected: '('")
        values = [""] if self._next in (")", ",") else []
        while True:
            token = self._take()
            if token == ")":
                return values
            if token == ",":
                if self._next in (",", ")"):
                    values.append("")
            elif _is_name(token):
                values.append(token)
                if self._next not in (",", ")"):
                    raise ApiError(400, f"{UNREADABLE}found '{self._next}', expected: ',' or ')'")
            else:
                raise ApiError(400, f"{UNREADABLE}found '{token}', expected: ',', or identifier")


Query = Mapping[str, str]
_FALSE = ("false", "0")
LARGEST = 2**63 - 1
MANAGER_MAX = 128


class Match(StrEnum):
    """The meaning of a list's resourceVersion."""

    NOT_OLDER = "NotOlderThan"
    EXACT = "Exact"


class FieldValidation(StrEnum):
    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a collection are selected."""

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
class ListOptions:
    selection: Selection
    limit: int | None = None
    position: int | None = None
    """The requested resourceVersion, or that of the first page."""
    match: Match | None = None
    after: str = ""
    """The key after which this page begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    selection: Selection
    position: int | None = None
    """None: from the present state, which is sent first."""
    bookmarks: bool = False
    send_initial: bool = False
    timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    dry_run: bool
    validation: FieldValidation
    force: bool = False
    """An apply takes fields from other managers."""


def is_watch(query: Query) -> bool:
    return "watch" in query and _flag(query, "watch")


def list_options(query: Query, resource: Resource) -> ListOptions:
    chosen, limit = selection(query, resource), max(_number(query, "limit"), 0)
    _number(query, "timeoutSeconds")
    _check_list_options(query, watch=False)
    position = _version(query)
    if token := query.get("continue"):
        first, after = read_token(token)
        if position:
            raise ApiError(400, "specifying resource version is not allowed when using continue")
        return ListOptions(selection=chosen, limit=limit or None, position=first, match=Match.EXACT, after=after)
    match = Match(query["resourceVersionMatch"]) if query.get("resourceVersionMatch") else None
    return ListOptions(selection=chosen, limit=limit or None, position=position or None, match=match)


def watch_options(query: Query, resource: Resource) -> WatchOptions:
    _check_list_options(query, watch=True)
    return WatchOptions(
        selection=selection(query, resource),
        position=_version(query, single=True) or None,
        bookmarks="allowWatchBookmarks" in query and _flag(query, "allowWatchBookmarks"),
        send_initial="sendInitialEvents" in query and _flag(query, "sendInitialEvents"),
        timeout_seconds=max(_number(query, "timeoutSeconds"), 0) or None,
    )


def _check_list_options(query: Query, *, watch: bool) -> None:
    """Which options may be combined, as in Kubernetes; ApiError 422."""
    option, errors = "resourceVersionMatch", list[FieldError]()
    match, version = query.get(option, ""), query.get("resourceVersion", "")
    initial = "sendInitialEvents" in query
    if watch:
        if match and not initial:
            errors.append(
                forbidden(option, f"{option} is forbidden for watch unless sendInitialEvents is provided")
            )
        elif initial and match != Match.NOT_OLDER:
            errors.append(forbidden(option, f"sendInitialEvents requires setting {option} to NotOlderThan"))
        if query.get("continue"):
            errors.append(forbidden("continue", "continue is forbidden for watch"))
    else:
        if match and not version:
            errors.append(forbidden(option, f"{option} is forbidden unless resourceVersion is provided"))
        if match and query.get("continue"):
            errors.append(forbidden(option, f"{option} is forbidden when continue is provided"))
        if match and match not in tuple(Match):
            errors.append(unsupported(option, match[:80], (*sorted(Match), "")))
        if match == Match.EXACT and version == "0":
            errors.append(forbidden(option, f'{option} "exact" is forbidden for resourceVersion "0"'))
        if initial:
            errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if errors:
        raise invalid_options("ListOptions", *errors)


def least_version(query: Query) -> int | None:
    """The minimum version at which a single object must be read."""
    return _version(query, single=True) or None


def field_manager(query: Query, agent: str) -> str:
    """The owner of the written fields: from the request, or the client's user agent."""
    return query.get("fieldManager") or agent.partition("/")[0][:MANAGER_MAX] or "unknown"


def write_options(query: Query, kind: str, *, apply: bool = False) -> WriteOptions:
    """`kind` is Kubernetes' name for the options: CreateOptions, UpdateOptions or PatchOptions."""
    validation = query.get("fieldValidation") or FieldValidation.WARN
    errors: list[FieldError] = []
    if apply and not query.get("fieldManager"):
        errors.append(required("fieldManager", "is required for apply patch"))
    if kind == "PatchOptions" and "force" in query and not apply:
        errors.append(forbidden("force", "may not be specified for non-apply patch"))
    if len(query.get("fieldManager", "").encode()) > MANAGER_MAX:
        errors.append(too_long("fieldManager", MANAGER_MAX))
    if validation not in tuple(FieldValidation):
        errors.append(unsupported("fieldValidation", validation[:80], ("", *sorted(FieldValidation))))
    if errors:
        raise invalid_options(kind, *errors)
    force = apply and "force" in query and _flag(query, "force")
    return WriteOptions(dry_run(query.get("dryRun"), kind), FieldValidation(validation), force)


def dry_run(value: str | None, kind: str) -> bool:
    if not value:
        return False
    if value != "All":
        raise invalid_options(kind, unsupported("dryRun", [value[:80]], ("All",)))
    return True


def selection(query: Query, resource: Resource) -> Selection:
    labels = None
    if text := query.get("labelSelector", "").strip():
        labels = parse_label_selector(text)
    return Selection(labels, parse_field_selector(query.get("fieldSelector", ""), resource))


def token(position: int, after: str) -> str:
    """Where a list continues: the version of the first page, and the last key sent."""
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
    """`single`: for one object, or a watch: there Kubernetes answers 500, and 400 for a list."""
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
