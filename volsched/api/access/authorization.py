"""Whether a caller may do what a request asks, and in which words Kubernetes says that they may not."""

from enum import Enum, auto

from volsched.api.access.allow_table import OPEN
from volsched.api.access.callers import Caller, Role
from volsched.api.access.request_attributes import RequestAttributes
from volsched.api.kubernetes.statuses import ApiError

NODES = ("nodes", "csinodes")
"""What a node is itself, by its name."""


class AccessVerdict(Enum):
    NO = auto()
    YES = auto()
    IF_OWN = auto()
    """If it belongs to the node that the caller is; the names in the request do not say so."""


def judge(caller: Caller, asked: RequestAttributes) -> AccessVerdict:
    row = asked.row
    verdict = AccessVerdict.NO
    if row is not None and asked.verb in row.known:
        return AccessVerdict.YES
    for grant in caller.grants:
        if not grant.covers(asked.namespace):
            continue
        if grant.role is Role.ADMIN:
            return AccessVerdict.YES
        may = None if row is None else row.may.get(grant.role)
        if may is None or asked.verb not in may.verbs:
            continue
        if not may.own:
            return AccessVerdict.YES
        verdict = _own(caller, asked)
        if verdict is AccessVerdict.YES:
            return verdict
    return verdict


def _own(caller: Caller, asked: RequestAttributes) -> AccessVerdict:
    if asked.resource in NODES:
        return AccessVerdict.YES if asked.name == caller.name else AccessVerdict.NO
    return AccessVerdict.IF_OWN


def is_open(asked: RequestAttributes) -> bool:
    return asked.path in OPEN and asked.verb == "get"


def forbidden(caller: Caller, asked: RequestAttributes) -> ApiError:
    if asked.group is None:
        return ApiError(403, f'forbidden: User "{caller.name}" cannot {asked.verb} path "{asked.path}"')
    what = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    whole = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    named = f' "{asked.name}"' if asked.name else ""
    message = (
        f'{whole}{named} is forbidden: User "{caller.name}" cannot {asked.verb} resource "{what}" '
        f'in API group "{asked.group}" {where}'
    )
    details = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    return ApiError(403, message, details={key: value for key, value in details.items() if value})
