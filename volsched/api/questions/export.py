"""A part of the log as a file: long work, done in a process of its own while a few others wait for their turn."""

import io

from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.operations import Context, OperationRequest
from volsched.log.reads.event_audit import Window
from volsched.log.retention.export import events_of, manifest_of, write_jsonl
from volsched.questions.history.moments import window_of

MOST_EXPORTED = 50_000
"""Events in one answer; whoever wants more asks for the next range."""


def export_range(context: Context, asked: OperationRequest) -> HttpAnswer:
    """A part of the log as `volsched export` writes it, for anybody to verify."""
    out = io.StringIO()
    with context.services.database.read() as connection:
        within: Window = window_of(connection, since=asked.text("since"), until=asked.text("until"), now=asked.now)
        if within.first > within.last:
            raise ApiError(404, "nothing was written in that time")
        last = min(within.last, within.first + asked.query["limit"] - 1)
        manifest = manifest_of(connection, first=within.first, last=last, now=asked.now)
        write_jsonl(out, manifest, events_of(connection, manifest))
    return HttpAnswer({"text": out.getvalue(), "first": manifest.first, "last": manifest.last})
