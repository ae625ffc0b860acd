"""Label selectors of requests, read as Kubernetes reads them: token by token, with its words for what is wrong."""

import re
from dataclasses import dataclass

from volsched.api.kubernetes.statuses import ApiError
from volsched.kube.selectors import LabelSelector, Requirement
from volsched.kube.validation.field_errors import each
from volsched.kube.validation.formats import label_value, qualified_name

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
        found: list[Requirement] = []
        while self._next != _END:
            if self._next != "!" and not _is_name(self._next):
                raise ApiError(400, f"found '{self._next}', expected: !, identifier, or 'end of string'")
            found.append(self._requirement())
            token = self._take()
            if token == _END:
                break
            if token != ",":
                raise ApiError(400, f"found '{token}', expected: ',' or 'end of string'")
            if self._next != "!" and not _is_name(self._next):
                raise ApiError(400, f"found '{self._next}', expected: identifier after ','")
        return found

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
        found = [""] if self._next in (")", ",") else []
        while True:
            token = self._take()
            if token == ")":
                return found
            if token == ",":
                if self._next in (",", ")"):
                    found.append("")
            elif _is_name(token):
                found.append(token)
                if self._next not in (",", ")"):
                    raise ApiError(400, f"{UNREADABLE}found '{self._next}', expected: ',' or ')'")
            else:
                raise ApiError(400, f"{UNREADABLE}found '{token}', expected: ',', or identifier")
