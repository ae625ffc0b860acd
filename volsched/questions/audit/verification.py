"""The outcome of a verification as data: what `verify -o json` prints, and what the API answers."""

from typing import Any

from volsched.log.errors import StoreError
from volsched.log.integrity.anchors import parse_anchor
from volsched.log.integrity.verify import VerifyReport, verify
from volsched.questions.audit.answers import QuestionError
from volsched.questions.audit.parameters import VerifyParameters
from volsched.questions.context import QuestionContext
from volsched.runtime.clock import rfc3339


def verified(report: VerifyReport) -> dict[str, Any]:
    proven = report.proven
    return {
        "ok": report.ok,
        "after": report.after,
        "position": report.head.position,
        "hash": report.head.hash.hex(),
        "streams": report.streams,
        "archives": report.archives,
        "redacted": report.redacted,
        "gaps": report.gaps,
        "anchors": report.anchors,
        "proven": proven and {"position": proven.position, "at": rfc3339(proven.at)},
        "findings": [it.as_json() for it in report.findings],
        "more": report.more,
    }


def verify_store(context: QuestionContext, asked: VerifyParameters) -> dict[str, Any]:
    try:
        anchors = [parse_anchor(line) for line in (asked.anchor, *asked.anchors) if line]
    except StoreError as error:
        raise QuestionError(f"anchor: {error}") from None
    return verified(verify(context.database, anchors=anchors, progress=context.progress))
