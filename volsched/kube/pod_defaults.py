"""Defaults that kube-apiserver fills into a pod: clients compare and print these fields, so our pods need them.

Pure: the given pod is never changed, and a value of a wrong type is left for the checks to refuse. Templates get
no defaults: a pod gets them when it is created, and an existing StatefulSet would otherwise get a new revision,
which restarts its pods.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from volsched.kube.validation.fields import quantity_of

EXECUTE = "NoExecute"
TOLERATED_AT_FIRST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
TOLERATED_SECONDS = 300

CONTAINERS = ("containers", "initContainers")
BEST_EFFORT, BURSTABLE, GUARANTEED = "BestEffort", "Burstable", "Guaranteed"
READABLE_BY_ALL = 0o644

_SPEC: Mapping[str, Any] = {
    "terminationGracePeriodSeconds": 30,
    "securityContext": {},
    "enableServiceLinks": True,
}
"""Optional fields: filled only where absent."""
_SPEC_TEXTS: Mapping[str, Any] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
"""Plain strings of the API, in which the empty string equals absence, as in the next mappings."""
_CONTAINER_TEXTS: Mapping[str, Any] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_NUMBERS: Mapping[str, Any] = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_HTTP_TEXTS: Mapping[str, Any] = {"path": "/", "scheme": "HTTP"}
_FILE_MODES = ("configMap", "downwardAPI", "projected", "secret")

_NAME = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?:localhost|[A-Za-z0-9-]*[A-Z][A-Za-z0-9-]*|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+(?=:\d+/))(?::\d+)?/)?"
    rf"{_NAME}(?:/{_NAME})*(?::(?P<tag>\w[\w.-]{{0,127}}))?(?P<digest>@\w+:[0-9a-fA-F]{{32,}})?"
)


def with_pod_defaults(pod: dict[str, Any]) -> dict[str, Any]:
    spec = pod.get("spec", {})
    if not isinstance(spec, dict):
        return pod
    filled = _filled(_filled(spec, _SPEC, silent=(None,)), _SPEC_TEXTS)
    on_host = spec.get("hostNetwork") is True
    for group in CONTAINERS:
        filled = _each(filled, group, lambda it: _container(it, on_host=on_host))
    return {**pod, "spec": _with_tolerations(_each(filled, "volumes", _volume))}


def pull_policy(image: Any) -> str:
    """Always for the latest image, IfNotPresent for an image of a certain version."""
    named = _IMAGE.fullmatch(image) if isinstance(image, str) else None
    if named is None:
        return "IfNotPresent"
    tag = named["tag"] or ("" if named["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def with_kept_pull_policies(old: Mapping[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The new pod spec, with the policies that old containers got by default and new ones do not name.

    A policy follows from the first image and stays when the image changes; a list of containers that is applied
    as a whole has the default of its own image there.
    """
    for group in CONTAINERS:
        containers = old.get(group)
        before = {
            it.get("name"): it["imagePullPolicy"]
            for it in (containers if isinstance(containers, list) else ())
            if isinstance(it, dict) and it.get("imagePullPolicy") == pull_policy(it.get("image"))
        }

        def keep(container: dict[str, Any], before: Mapping[Any, str] = before) -> dict[str, Any]:
            silent = container.get("imagePullPolicy") in (None, "", pull_policy(container.get("image")))
            kept = before.get(container.get("name")) if silent else None
            return container if kept is None else {**container, "imagePullPolicy": kept}

        new = _each(new, group, keep)
    return new


def qos_class(spec: Mapping[str, Any]) -> str:
    """The pod's QoS class, from its requests and limits of cpu and memory."""
    own = spec.get("resources")
    holders = [spec] if isinstance(own, dict) and own else [it for name in CONTAINERS for it in _dicts(spec, name)]
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    guaranteed = True
    for holder in holders:
        resources = holder.get("resources")
        _add_amounts(requests, resources, "requests")
        guaranteed &= _add_amounts(limits, resources, "limits") == {"cpu", "memory"}
    if not requests and not limits:
        return BEST_EFFORT
    return GUARANTEED if guaranteed and requests == limits else BURSTABLE


# --- parts ----------------------------------------------------------------------------------------------


def _container(container: dict[str, Any], *, on_host: bool) -> dict[str, Any]:
    filled = _filled(container, _CONTAINER_TEXTS)
    filled = _filled(filled, {"imagePullPolicy": pull_policy(container.get("image"))})
    filled = _requesting(_filled(filled, {"resources": {}}, silent=(None,)))
    filled = _each(_each(filled, "ports", lambda it: _port(it, on_host=on_host)), "env", _variable)
    for name in _PROBES:
        filled = _inside(filled, name, _probe)
    return _inside(filled, "lifecycle", _lifecycle)


def _requesting(container: dict[str, Any]) -> dict[str, Any]:
    """A container's requests default to its limits."""
    resources = container["resources"]
    if not isinstance(resources, dict):
        return container
    limits, requests = resources.get("limits"), resources.get("requests", {})
    if not isinstance(limits, dict) or not isinstance(requests, dict) or limits.keys() <= requests.keys():
        return container
    missing = {name: amount for name, amount in limits.items() if name not in requests}
    return {**container, "resources": {**resources, "requests": {**requests, **missing}}}


def _port(port: dict[str, Any], *, on_host: bool) -> dict[str, Any]:
    filled = _filled(port, {"protocol": "TCP"})
    number = port.get("containerPort")
    return _filled(filled, {"hostPort": number}, silent=(None, 0)) if on_host and number else filled


def _variable(variable: dict[str, Any]) -> dict[str, Any]:
    return _inside(variable, "valueFrom", lambda it: _inside(it, "fieldRef", _field_reference))


def _field_reference(reference: dict[str, Any]) -> dict[str, Any]:
    return _filled(reference, {"apiVersion": "v1"})


def _probe(probe: dict[str, Any]) -> dict[str, Any]:
    filled = _filled(probe, _PROBE_NUMBERS, silent=(None, 0))
    return _inside(filled, "httpGet", lambda it: _filled(it, _HTTP_TEXTS))


def _lifecycle(lifecycle: dict[str, Any]) -> dict[str, Any]:
    for name in ("postStart", "preStop"):
        lifecycle = _inside(
            lifecycle, name, lambda it: _inside(it, "httpGet", lambda get: _filled(get, _HTTP_TEXTS))
        )
    return lifecycle


def _volume(volume: dict[str, Any]) -> dict[str, Any]:
    if volume.keys() == {"name"}:
        return {**volume, "emptyDir": {}}
    for name in _FILE_MODES:
        volume = _inside(volume, name, lambda it: _filled(it, {"defaultMode": READABLE_BY_ALL}, silent=(None,)))
    volume = _inside(volume, "hostPath", lambda it: _filled(it, {"type": ""}, silent=(None,)))
    return _inside(volume, "ephemeral", lambda it: _inside(it, "volumeClaimTemplate", _claim_template))


def _claim_template(template: dict[str, Any]) -> dict[str, Any]:
    return _inside(template, "spec", lambda it: _filled(it, {"volumeMode": "Filesystem"}, silent=(None,)))


def _with_tolerations(spec: dict[str, Any]) -> dict[str, Any]:
    """Adds the default tolerations for unready and unreachable nodes, unless the pod has its own."""
    given = spec.get("tolerations") or []
    if not isinstance(given, list):
        return spec
    named = {
        str(it.get("key") or "")
        for it in given
        if isinstance(it, dict) and it.get("effect") in [EXECUTE, "", None]
    }
    added = [
        {"key": key, "operator": "Exists", "effect": EXECUTE, "tolerationSeconds": TOLERATED_SECONDS}
        for key in TOLERATED_AT_FIRST
        if not named.intersection((key, ""))
    ]
    return {**spec, "tolerations": [*given, *added]} if added else spec


# --- values ---------------------------------------------------------------------------------------------


def _filled(
    holder: dict[str, Any], values: Mapping[str, Any], *, silent: tuple[Any, ...] = (None, "")
) -> dict[str, Any]:
    missing = {name: value for name, value in values.items() if _is_silent(holder.get(name), silent)}
    return {**holder, **missing} if missing else holder


def _is_silent(value: Any, silent: tuple[Any, ...]) -> bool:
    """Whether the value counts as absent; False is not taken for 0."""
    return value is None or (type(value) in (str, int) and value in silent)


def _each(holder: dict[str, Any], name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    items = holder.get(name)
    if not isinstance(items, list):
        return holder
    return {**holder, name: [change(it) if isinstance(it, dict) else it for it in items]}


def _inside(
    holder: dict[str, Any], name: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    inner = holder.get(name)
    return {**holder, name: change(inner)} if isinstance(inner, dict) else holder


def _dicts(holder: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    items = holder.get(name)
    return [it for it in items if isinstance(it, dict)] if isinstance(items, list) else []


def _add_amounts(total: dict[str, int], resources: Any, name: str) -> set[str]:
    """Adds the requests or limits of cpu and memory; returns the names of those above zero."""
    given = resources.get(name) if isinstance(resources, dict) else None
    if not isinstance(given, dict):
        return set()
    amounts = {it: quantity_of(given.get(it)) for it in ("cpu", "memory")}
    stated = {it: amount.nano for it, amount in amounts.items() if amount is not None and amount.nano > 0}
    for it, nano in stated.items():
        total[it] = total.get(it, 0) + nano
    return set(stated)
