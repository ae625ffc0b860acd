"""In what form a client wants its answer, and in what form it has sent its body."""

from dataclasses import dataclass
from enum import Enum

from volsched.api.kubernetes.statuses import ApiError

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
"""Of bodies (`protobuf`); answers are never in it."""
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCHES = ("application/apply-patch+yaml", "application/apply-patch+cbor")
PATCHES = (MERGE_PATCH, JSON_PATCH, STRATEGIC_PATCH)
META_GROUP = "meta.k8s.io"
META_VERSIONS = ("v1", "v1beta1")


class AnswerFormat(Enum):
    OBJECT = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    form: AnswerFormat
    version: str = "v1"
    """Of the table or the metadata: clients ask for what they can read."""

    @property
    def api_version(self) -> str:
        return f"{META_GROUP}/{self.version}"


PLAIN = AnswerRequest(AnswerFormat.OBJECT)


def wanted_form(accept: str | None) -> AnswerRequest:
    """The first form that we have, in the client's order; ApiError 406 where it takes none."""
    if not accept or not accept.strip():
        return PLAIN
    for part in accept.split(","):
        media, parameters = media_type(part)
        if media not in (JSON, "application/*", "*/*"):
            continue
        if "as" not in parameters:
            return PLAIN
        forms = [form for form in AnswerFormat if form.value and form.value == parameters["as"]]
        if forms and parameters.get("g") == META_GROUP and parameters.get("v") in META_VERSIONS:
            return AnswerRequest(forms[0], parameters["v"])
    raise ApiError(406, "only the following media types are accepted: application/json")


def media_type(text: str) -> tuple[str, dict[str, str]]:
    """`application/json;as=Table` → its name, and its parameters."""
    media, *rest = (part.strip() for part in text.split(";"))
    pairs = (part.partition("=") for part in rest if "=" in part)
    return media.lower(), {name.strip(): value.strip().strip('"') for name, _, value in pairs}


def body_form(content_type: str | None) -> str:
    """JSON, YAML or protobuf; ApiError 415 for what else a body may be written in."""
    media = media_type(content_type)[0] if content_type else JSON
    if media in (JSON, YAML, PROTOBUF):
        return media
    raise ApiError(
        415,
        "the body of the request was in an unknown format - accepted media types include: "
        f"{JSON}, {YAML}, {PROTOBUF}",
    )


def patch_form(content_type: str | None) -> str:
    media = media_type(content_type)[0] if content_type else ""
    if media in PATCHES:
        return media
    if media in APPLY_PATCHES:
        raise ApiError(
            415,
            "server-side apply is not supported; use kubectl apply without --server-side, or send one of: "
            + ", ".join(PATCHES),
        )
    raise ApiError(415, "415: Unsupported Media Type")
