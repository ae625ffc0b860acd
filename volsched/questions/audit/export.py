"""A part of the log as a file in one answer, which can be verified without access to the store."""

import io
from typing import Any

from volsched.log.retention.export import events_of, manifest_of, write_jsonl
from volsched.questions.audit.parameters import ExportParameters
from volsched.questions.context import QuestionContext
from volsched.questions.history.moments import window_of
from volsched.questions.refusals import UnknownError


def export_range(context: QuestionContext, parameters: ExportParameters) -> dict[str, Any]:
    """The text of the file that `volsched export` writes."""
    out = io.StringIO()
    with context.database.read() as connection:
        within = window_of(connection, since=parameters.since, until=parameters.until, now=context.now)
        if within.first > within.last:
            raise UnknownError("nothing was written in that time")
        last = min(within.last, within.first + parameters.limit - 1)
        manifest = manifest_of(connection, first=within.first, last=last, now=context.now)
        write_jsonl(out, manifest, events_of(connection, manifest))
    return {"text": out.getvalue(), "first": manifest.first, "last": manifest.last}
