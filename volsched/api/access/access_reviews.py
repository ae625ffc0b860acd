"""`kubectl auth can-i`, `can-i --list` and `whoami`: callers' questions about themselves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from volsched.api.access.authorization import (
    ALL,
    NODES,
    OURS,
    TABLE,
    AccessVerdict,
    RequestAttributes,
    judge,
    namespace_for,
)
from volsched.api.access.callers import Caller, Role, current_caller
from volsched.api.kubernetes.bodies import SMALL_BYTES, RequestBody, read_mapping
from volsched.api.kubernetes.negotiation import HttpAnswer, body_form
from volsched.api.kubernetes.resources import RESOURCES
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.limits import receive_body
from volsched.api.questions.routes import NAMESPACED, OPERATIONS
from volsched.api.services import Services

ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
ONLY_OWN = "only objects of the caller's own node"
PATH_VERBS = ("get", "post")
IN_NAMESPACES = {(it.group, it.plural) for it in RESOURCES if it.namespaced} | {
    (OURS, it.resource) for it in OPERATIONS if it.path.startswith(NAMESPACED)
}
StatusOf = Callable[[Caller, Mapping[str, Any]], dict[str, Any]]
"""Computes the status of a review from its spec."""


@dataclass(frozen=True, slots=True)
class Reviews:
    services: Services

    async def access(self, request: Request) -> Response:
        return await self._answer(
            request,
            "SelfSubjectAccessReview",
            lambda caller, spec: _verdict_status(judge(caller, _attributes(spec))),
        )

    async def rules(self, request: Request) -> Response:
        return await self._answer(
            request,
            "SelfSubjectRulesReview",
            lambda caller, spec: _rules_status(caller, _text_of(spec, "namespace") or None),
        )

    async def whoami(self, request: Request) -> Response:
        return await self._answer(request, "SelfSubjectReview", lambda caller, _: {"userInfo": _user(caller)})

    async def _answer(self, request: Request, kind: str, status_for: StatusOf) -> Response:
        try:
            limits, content_type = self.services.limits, request.headers.get("content-type")
            most = min(limits.body_bytes, SMALL_BYTES)
            body = RequestBody(await receive_body(request, most=most, seconds=limits.body_seconds), content_type)
            review = await self.services.work(body.heavy, read_mapping, body.content, body_form(content_type))
            spec = review.get("spec")
            status = status_for(_caller(), spec if isinstance(spec, Mapping) else {})
        except ApiError as error:
            return HttpAnswer(error.status, error.code).response()
        except ClientDisconnect:
            return Response(status_code=400)
        _, _, group, version, _ = request.url.path.split("/")
        kind_fields = {"kind": kind, "apiVersion": f"{group}/{version}"}
        return HttpAnswer({**review, **kind_fields, "metadata": {}, "status": status}, 201).response()


def _user(caller: Caller) -> dict[str, Any]:
    groups = [
        grant.role if grant.namespaces is None else f"{grant.role}:{','.join(sorted(grant.namespaces))}"
        for grant in caller.grants
    ]
    return {"username": caller.name, "groups": groups, "extra": {"volsched.io/actor": [caller.actor]}}


def _rules_status(caller: Caller, namespace: str | None) -> dict[str, Any]:
    """The rows of the table that apply to the caller, in the namespace and cluster-wide."""
    if any(grant.role is Role.ADMIN for grant in caller.grants):
        everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        paths = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
        return {"resourceRules": everything, "nonResourceRules": paths, "incomplete": False}
    resources, paths, own = [], [], False
    for row in TABLE:
        resource, _, subresource = row.resource.partition("/")
        if row.group is None:
            verbs = [
                it
                for it in PATH_VERBS
                if judge(caller, RequestAttributes(verb=it, path=row.resource)) is AccessVerdict.YES
            ]
            paths += [{"verbs": verbs, "nonResourceURLs": [row.resource]}] if verbs else []
            continue
        within = namespace if (row.group, resource) in IN_NAMESPACES else None
        name = caller.name if resource in NODES else None
        attributes = RequestAttributes(
            verb="", path="", group=row.group, resource=resource, namespace=within, name=name
        )
        attributes = replace(attributes, subresource=subresource or None)
        verdicts = {it: judge(caller, replace(attributes, verb=it)) for it in ALL}
        own = own or AccessVerdict.IF_OWN in verdicts.values()
        verbs = [verb for verb, verdict in verdicts.items() if verdict is AccessVerdict.YES]
        resource_names = [resource, row.resource] if subresource == "*" else [row.resource]
        rule = {"verbs": verbs, "apiGroups": [row.group], "resources": resource_names}
        verbs_for_any_name = [
            it for it in verbs if judge(caller, replace(attributes, verb=it, name=None)) is AccessVerdict.YES
        ]
        resources += (
            [rule | ({} if verbs_for_any_name == verbs else {"resourceNames": [caller.name]})] if verbs else []
        )
    review_status = {"resourceRules": resources, "nonResourceRules": paths, "incomplete": own}
    return review_status | ({"evaluationError": f"more is allowed: {ONLY_OWN}"} if own else {})


def _caller() -> Caller:
    caller = current_caller()
    if caller is None:
        raise ApiError(401, "Unauthorized")
    return caller


def _attributes(spec: Mapping[str, Any]) -> RequestAttributes:
    path, resource = spec.get("nonResourceAttributes"), spec.get("resourceAttributes")
    if isinstance(path, Mapping):
        return RequestAttributes(verb=_text_of(path, "verb"), path=_text_of(path, "path"))
    if not isinstance(resource, Mapping):
        raise ApiError(422, "spec: resourceAttributes or nonResourceAttributes is required")
    attributes = RequestAttributes(
        verb=_text_of(resource, "verb"),
        path="",
        group=_text_of(resource, "group"),
        resource=_text_of(resource, "resource"),
        subresource=_text_of(resource, "subresource") or None,
        namespace=_text_of(resource, "namespace") or None,
        name=_text_of(resource, "name") or None,
    )
    return replace(attributes, namespace=namespace_for(attributes))


def _text_of(attributes: Mapping[str, Any], field: str) -> str:
    value = attributes.get(field, "")
    if not isinstance(value, str):
        raise ApiError(400, f"{field}: must be a string")
    return value


def _verdict_status(verdict: AccessVerdict) -> dict[str, Any]:
    status: dict[str, Any] = {"allowed": verdict is AccessVerdict.YES}
    return status | ({"reason": ONLY_OWN} if verdict is AccessVerdict.IF_OWN else {})
