"""The log's growth over time, and the bindings that were rolled back: the data of the console's time slider."""

from volsched.log.observed_cluster import known_cursors
from volsched.log.reads.decision_audit import undone_bindings
from volsched.log.reads.event_audit import log_curve, namespace_curve
from volsched.log.reads.tail import read_head
from volsched.questions.context import QuestionContext
from volsched.questions.history.moments import window_of
from volsched.questions.map.answers import FailedBinding, LogTimeline
from volsched.questions.map.parameters import TimelineParameters
from volsched.questions.registry import API_VERSION

MOST_FAILURES = 500


def timeline(context: QuestionContext, parameters: TimelineParameters) -> LogTimeline:
    """The timeline: counts and outcomes, which metrics and lists show too, so reads of it are not recorded."""
    with context.database.read() as connection:
        within = window_of(connection, since=parameters.since, until=parameters.until, now=context.now)
        if parameters.namespace is None:
            points, events = log_curve(connection, within, most=parameters.points), within.last - within.first + 1
        else:
            points, events = namespace_curve(connection, within, parameters.namespace, most=parameters.points)
        undone = undone_bindings(connection, within, namespace=parameters.namespace, limit=MOST_FAILURES)
        cursors = known_cursors(connection)
        head = read_head(connection).position
    failures: list[FailedBinding] = [
        {"at": it.ended_at, "binding": it.id, "pod": it.pod, "node": it.node, "reason": it.reason} for it in undone
    ]
    answer: LogTimeline = {
        "apiVersion": API_VERSION,
        "kind": "LogTimeline",
        "first": within.first,
        "last": within.last,
        "head": head,
        "events": events,
        "points": [[it.position, it.at] for it in points],
        "failures": failures,
    }
    if cursors:
        answer["heardAt"] = min(it.heard_at for it in cursors.values())
    return answer
