"""Required fields of events of `events.k8s.io`; events of `/api/v1` are accepted nearly unchecked.

Errors name the fields of the stored form (`involvedObject`, not `regarding`), as Kubernetes does.
"""

from volsched.kube.validation.field_errors import (
    FieldErrors,
    each,
    invalid,
    qualified_name,
    required,
    too_long,
)
from volsched.kube.validation.fields import Fields, fields_at, text_at

_NAME_MAX = 128
_MESSAGE_MAX = 1024
_OF_CLUSTER_OBJECTS = frozenset({"default", "kube-system"})
_LEGACY = ("firstTimestamp", "lastTimestamp", "count", "source")


def new_event_errors(event: Fields) -> FieldErrors:
    """The errors of a new event of `events.k8s.io`. Without an event time the other new fields are not checked."""
    errors = _namespace_errors(event)
    if event.get("eventTime") is None:
        errors.append(required("eventTime"))
    else:
        errors += _reporter_errors(event)
    if (kind := text_at(event, "type")) not in ("Normal", "Warning"):
        errors.append(invalid("type", "", f"has invalid value: {kind}"))
    return errors + [invalid(name, "", "needs to be unset") for name in _LEGACY if event.get(name)]


def _namespace_errors(event: Fields) -> FieldErrors:
    where = text_at(fields_at(event, "metadata"), "namespace")
    involved = text_at(fields_at(event, "involvedObject"), "namespace")
    agrees = where == involved if involved else where in _OF_CLUSTER_OBJECTS
    return [] if agrees else [invalid("involvedObject.namespace", involved, "does not match event.namespace")]


def _reporter_errors(event: Fields) -> FieldErrors:
    errors: FieldErrors = []
    reporter = text_at(event, "reportingComponent")
    if not reporter:
        errors.append(required("reportingController"))
    errors += each("reportingController", reporter, qualified_name(reporter) if reporter else ())
    for name in ("reportingInstance", "action", "reason"):
        text = text_at(event, name)
        if not text:
            errors.append(required(name))
        elif len(text) > _NAME_MAX:
            errors.append(too_long(name, _NAME_MAX))
    if len(text_at(event, "message")) > _MESSAGE_MAX:
        errors.append(too_long("message", _MESSAGE_MAX))
    return errors
