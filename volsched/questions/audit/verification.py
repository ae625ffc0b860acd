"""The outcome of a verification as data: what `verify -o json` prints, and what the API answers."""

from typing import Any

from volsched.log.integrity.verify import VerifyReport
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
