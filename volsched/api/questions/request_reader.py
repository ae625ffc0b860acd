"""From a request to an operation's input; errors name the field that is unreadable or refused."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel, ValidationError

from volsched.api.kubernetes.bodies import read_mapping
from volsched.api.kubernetes.negotiation import JSON, body_form, patch_form
from volsched.api.kubernetes.statuses import ApiError, store_error
from volsched.api.questions.operations import BASE, Operation, Param
from volsched.kube.problems import ManifestError
from volsched.log.events.streams import UnknownKindError
from volsched.questions.refusals import MissingError, MomentError, QuestionError, TokenError, UnknownError

LONGEST = 500
"""Characters of a name or of a value in the query; the longest legal name is half of it."""
_FORBIDDEN = frozenset("/%\\\0")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def segments_of(raw: str) -> tuple[str, ...] | None:
    """The decoded segments of the raw path below our root; None where one is not a name."""
    if not raw.startswith(f"{BASE}/"):
        return None
    try:
        parts = [unquote(it, errors="strict") for it in raw.removeprefix(f"{BASE}/").split("/")]
    except UnicodeDecodeError:
        return None
    return None if any(not _is_name(it) for it in parts) else tuple(parts)


def matched(operation: Operation, segments: tuple[str, ...]) -> dict[str, str] | None:
    """The values of the path's placeholders; None for another path."""
    if len(segments) != len(operation.segments):
        return None
    values: dict[str, str] = {}
    for template, segment in zip(operation.segments, segments, strict=True):
        if template.startswith("{"):
            values[template.strip("{}")] = segment
        elif template != segment:
            return None
    return values


def read_query(params: Iterable[Param], query: Mapping[str, str]) -> dict[str, Any]:
    """ApiError 400 where a value is not of its type. Unknown parameters are ignored, as in Kubernetes."""
    values: dict[str, Any] = {}
    for param in params:
        text = query.get(param.name, "")
        if text == "":
            if param.required:
                raise ApiError(400, f"{param.name}: Required value: {param.about}")
            values[param.name] = param.default
        else:
            values[param.name] = _value(param, text)
    return values


def read_body(operation: Operation, content: bytes, content_type: str | None) -> BaseModel | None:
    """ApiError 400 where it is no object, 422 where a field is wrong."""
    model = operation.body
    if model is None or (not content.strip() and not operation.needs_body):
        return None if model is None else model()
    if operation.media == JSON:
        fields = read_mapping(content, body_form(content_type))
    elif patch_form(content_type) == operation.media:
        fields = read_mapping(content, JSON)
    else:
        raise ApiError(415, f"only patches of type {operation.media} are accepted here")
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        causes = [
            {"reason": "FieldValueInvalid", "message": it["msg"], "field": ".".join(map(str, it["loc"]))}
            for it in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        problems = "; ".join(f"{it['field'] or 'the body'}: {it['message']}" for it in causes)
        raise ApiError(422, f"the body is invalid: {problems}", details={"causes": causes}) from None


def _value(param: Param, text: str) -> Any:
    if len(text) > LONGEST or not text.isprintable():
        raise ApiError(400, f"{param.name}: Invalid value: longer than {LONGEST} characters, or not printable")
    if param.choices and text not in param.choices:
        choices = ", ".join(param.choices)
        raise ApiError(400, f'{param.name}: Unsupported value: "{text}": supported values: {choices}')
    if param.type == "boolean":
        if text not in _FLAGS:
            raise ApiError(400, f'{param.name}: Invalid value: "{text}": must be true or false')
        return _FLAGS[text]
    if param.type == "integer":
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise ApiError(400, f'{param.name}: Invalid value: "{text}": must be a whole number, not negative')
        number = int(text)
        if (param.least is not None and number < param.least) or (param.most is not None and number > param.most):
            raise ApiError(
                400, f"{param.name}: Invalid value: {number}: must be from {param.least} to {param.most}"
            )
        return number
    return text


def _is_name(text: str) -> bool:
    named = text not in ("", ".", "..") and len(text) <= LONGEST
    return named and _FORBIDDEN.isdisjoint(text) and text.isprintable()


# HTTP errors for refusals of the questions and rules.


def error_of(error: Exception) -> ApiError:
    """The HTTP error for a refusal of the questions or rules."""
    match error:
        case MissingError():
            details = {"name": error.name, "group": "volsched.io", "kind": error.plural}
            return ApiError(404, str(error), details=details)
        case UnknownError() | UnknownKindError():
            return ApiError(404, str(error))
        case TokenError():
            return ApiError(400, "continue: no page ended there; send the token of the previous page")
        case MomentError():
            return ApiError(400, str(error).replace("--until", "until").replace("--as-of", "asOf"))
        case ManifestError():
            causes = [{"reason": "FieldValueInvalid", "message": str(it), "field": ""} for it in error.problems]
            problems = "; ".join(it["message"] for it in causes[:5])
            return ApiError(422, f"manifests: {problems}", details={"causes": causes[:50]})
        case QuestionError():
            return ApiError(422, str(error))
        case _:
            return store_error(error)
