"""The `eviction` subresource: a deletion that PodDisruptionBudgets may refuse, as `kubectl drain` uses it."""

from volsched.api.kubernetes.bodies import RequestBody, check_kind
from volsched.api.kubernetes.negotiation import HttpAnswer
from volsched.api.kubernetes.queries import Query, write_options
from volsched.api.kubernetes.resources import RequestTarget
from volsched.api.kubernetes.statuses import ApiError, success
from volsched.api.kubernetes.write_handlers import deletion_options, grace_period, is_dry, small_body
from volsched.api.services import Services
from volsched.kube.validation.fields import fields_at, text_at
from volsched.objects import door
from volsched.objects.surroundings import read_budgets

EVICTION = "Eviction"
_OLDER, _VERSION = "policy/v1beta1", "policy/v1"


async def evict(services: Services, target: RequestTarget, query: Query, body: RequestBody) -> HttpAnswer:
    raw = await services.work(body.heavy, small_body, body, EVICTION)
    version = _OLDER if raw.get("apiVersion") == _OLDER else _VERSION
    check_kind(raw, EVICTION, version, served=EVICTION, group="policy")
    if text_at(fields_at(raw, "metadata"), "name") != target.name:
        raise ApiError(400, "name in URL does not match name in Eviction object")
    options = deletion_options(query, raw.get("deleteOptions") or {})
    conditions = options.get("preconditions", {})
    budgets = await services.read(read_budgets, services.database, target.namespace or "")
    write = door.evict(
        target.key,
        services.author(),
        budgets=budgets,
        uid=conditions.get("uid"),
        version=conditions.get("resourceVersion"),
        grace=grace_period(options, {}),
    )
    dry = write_options(query, "CreateOptions").dry_run or is_dry({}, options)
    await services.write(write, dry_run=dry)
    return HttpAnswer(success(target, None, code=201), 201)
