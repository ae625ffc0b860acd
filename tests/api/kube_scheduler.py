"""kube-scheduler's side of the extender protocol, rule by rule, as a client for tests."""

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

Manifest = dict[str, Any]
DEFAULT_TIMEOUT_SECONDS = 5
HIGHEST_NODE_SCORE, HIGHEST_EXTENDER_SCORE = 100, 10
_EXTENDED_RESOURCE = re.compile(r"^(?!kubernetes\.io/|requests\.)[a-z0-9.-]+/[A-Za-z0-9._-]+$")


class ExtenderError(Exception):
    """What ends the scheduling cycle, or the binding, with an error."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """One entry of `extenders:` in a KubeSchedulerConfiguration."""

    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    preempt_verb: str = ""
    weight: int = 0
    node_cache_capable: bool = False
    ignorable: bool = False
    http_timeout: float = 0
    managed_resources: tuple[str, ...] = ()


def validate(configs: Sequence[Config]) -> list[str]:
    """What the scheduler says against a configuration before it starts."""
    wrong = [
        f"{it.url_prefix}: must have a positive weight" for it in configs if it.prioritize_verb and it.weight <= 0
    ]
    if sum(bool(it.bind_verb) for it in configs) > 1:
        wrong.append("only one extender can implement bind")
    names = [name for it in configs for name in it.managed_resources]
    wrong += [f"{name}: duplicate extender managed resource" for name in set(names) if names.count(name) > 1]
    return wrong + [f"{it}: no extended resource name" for it in names if not _EXTENDED_RESOURCE.match(it)]


@dataclass(frozen=True)
class Sieved:
    nodes: tuple[Manifest, ...]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


@dataclass(frozen=True)
class Extender:
    config: Config
    http: httpx.Client

    @property
    def url(self) -> str:
        return self.config.url_prefix.rstrip("/")

    def send(self, verb: str, message: Any) -> Any:
        """Anything but 200 is a call that failed."""
        url = f"{self.url}/{verb}"
        seconds = self.config.http_timeout or DEFAULT_TIMEOUT_SECONDS
        try:
            answer = self.http.post(url, json=message, timeout=seconds)
        except httpx.HTTPError as error:
            raise ExtenderError(f"{verb}: {error!r}") from error
        if answer.status_code != 200:
            raise ExtenderError(f"failed {verb} with extender at URL {url}, code {answer.status_code}")
        try:
            return answer.json()
        except ValueError as error:
            raise ExtenderError(f"{verb}: {error}") from error

    def is_interested(self, pod: Manifest) -> bool:
        if not self.config.managed_resources:
            return True
        spec = pod["spec"]
        containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
        asked = {
            name
            for container in containers
            for part in ("requests", "limits")
            for name in container.get("resources", {}).get(part, {})
        }
        return not asked.isdisjoint(self.config.managed_resources)

    def arguments(self, pod: Manifest, nodes: Sequence[Manifest]) -> Manifest:
        if self.config.node_cache_capable:
            return {"Pod": pod, "Nodes": None, "NodeNames": [name_of(it) for it in nodes]}
        return {"Pod": pod, "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None}

    def filter(self, pod: Manifest, nodes: Sequence[Manifest]) -> Sieved:
        if not self.config.filter_verb:
            return Sieved(tuple(nodes), {}, {})
        result = _folded(self.send(self.config.filter_verb, self.arguments(pod, nodes)))
        if result.get("error"):
            raise ExtenderError(result["error"])
        names, objects = result.get("nodenames"), result.get("nodes")
        left: list[Manifest] = []
        if self.config.node_cache_capable and names is not None:
            known = {name_of(it): it for it in nodes}
            for name in names:
                if name not in known:
                    what = f'claims a filtered node "{name}" which is not found in the input node list'
                    raise ExtenderError(f'extender "{self.url}" {what}')
                left.append(known[name])
        elif objects is not None:
            left = list(objects["items"])
        return Sieved(tuple(left), result.get("failednodes") or {}, result.get("failedandunresolvablenodes") or {})

    def prioritize(self, pod: Manifest, nodes: Sequence[Manifest]) -> dict[str, int]:
        if not self.config.prioritize_verb:
            return {}
        found = self.send(self.config.prioritize_verb, self.arguments(pod, nodes))
        scores = {it["host"]: it["score"] for it in map(_folded, found)}
        assert all(0 <= score <= HIGHEST_EXTENDER_SCORE for score in scores.values()), scores
        return scores

    def bind(self, pod: Manifest, node: str) -> None:
        metadata = pod["metadata"]
        message = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata.get("uid", ""),
            "Node": node,
        }
        error = _folded(self.send(self.config.bind_verb, message)).get("error")
        if error:
            raise ExtenderError(error)

    def preempt(self, pod: Manifest, victims: Mapping[str, Sequence[Manifest]]) -> dict[str, list[str]]:
        full = {it: {"Pods": list(pods), "NumPDBViolations": 0} for it, pods in victims.items()}
        meta = {
            node: {"Pods": [{"UID": pod["metadata"]["uid"]} for pod in pods], "NumPDBViolations": 0}
            for node, pods in victims.items()
        }
        cached = self.config.node_cache_capable
        message = {
            "Pod": pod,
            "NodeNameToVictims": None if cached else full,
            "NodeNameToMetaVictims": meta if cached else None,
        }
        found = _folded(self.send(self.config.preempt_verb, message))["nodenametometavictims"]
        return {node: [_folded(pod)["uid"] for pod in _folded(it)["pods"]] for node, it in found.items()}


@dataclass
class Scheduler:
    """What becomes of a pod that only extenders have a word about."""

    configs: Sequence[Config]
    http: httpx.Client = field(default_factory=httpx.Client)

    def __post_init__(self) -> None:
        wrong = validate(self.configs)
        if wrong:
            raise ExtenderError("; ".join(wrong))
        self.extenders = [Extender(it, self.http) for it in self.configs]

    def filter(self, pod: Manifest, nodes: Iterable[Manifest]) -> Sieved:
        """One extender after the other, each on what the one before has left."""
        left, failed, unresolvable = tuple(nodes), dict[str, str](), dict[str, str]()
        for extender in self.extenders:
            if not left:
                break
            if not extender.is_interested(pod):
                continue
            try:
                found = extender.filter(pod, left)
            except ExtenderError:
                if extender.config.ignorable:
                    continue
                raise
            left = found.nodes
            unresolvable |= found.unresolvable
            failed |= {name: why for name, why in found.failed.items() if name not in found.unresolvable}
        return Sieved(left, failed, unresolvable)

    def prioritize(self, pod: Manifest, nodes: Sequence[Manifest]) -> dict[str, int]:
        """All extenders at once; whoever fails says nothing."""

        def ask(extender: Extender) -> dict[str, int]:
            try:
                found = extender.prioritize(pod, nodes) if extender.is_interested(pod) else {}
            except ExtenderError:
                return {}
            worth = extender.config.weight * HIGHEST_NODE_SCORE // HIGHEST_EXTENDER_SCORE
            return {name: score * worth for name, score in found.items()}

        with ThreadPoolExecutor() as threads:
            answers = list(threads.map(ask, self.extenders))
        return {name: sum(it.get(name, 0) for it in answers) for name in map(name_of, nodes)}

    def bind(self, pod: Manifest, node: str) -> bool:
        """False: no extender binds this pod, so the default binder does."""
        for extender in self.extenders:
            if not extender.config.bind_verb or not extender.is_interested(pod):
                continue
            try:
                extender.bind(pod, node)
            except ExtenderError:
                if extender.config.ignorable:
                    continue
                raise
            return True
        return False

    def preempt(self, pod: Manifest, victims: Mapping[str, Sequence[Manifest]]) -> dict[str, list[str]]:
        left = {node: list(pods) for node, pods in victims.items()}
        for extender in self.extenders:
            if not extender.config.preempt_verb or not extender.is_interested(pod):
                continue
            known = {it["metadata"]["uid"]: it for pods in left.values() for it in pods}
            try:
                found = extender.preempt(pod, left)
            except ExtenderError:
                if extender.config.ignorable:
                    continue
                raise
            kept: dict[str, list[Manifest]] = {}
            for node, uids in found.items():
                if not uids:
                    if extender.config.ignorable:
                        continue
                    raise ExtenderError(f"expected at least one victim pod on node {node}")
                kept[node] = [known[uid] for uid in uids]
            left = kept
        return {node: [it["metadata"]["name"] for it in pods] for node, pods in left.items()}

    def schedule(self, pod: Manifest, nodes: Sequence[Manifest]) -> str:
        """Filter, prioritize, bind; the node, of several alike the first by name."""
        found = self.filter(pod, nodes)
        if not found.nodes:
            raise ExtenderError(f"no node: {dict(found.failed)} {dict(found.unresolvable)}")
        scores = self.prioritize(pod, found.nodes)
        chosen = min(map(name_of, found.nodes), key=lambda name: (-scores[name], name))
        assert self.bind(pod, chosen)
        return chosen


def name_of(node: Manifest) -> str:
    return str(node["metadata"]["name"])


def _folded(message: Manifest) -> Manifest:
    """Go reads keys in any case."""
    return {name.lower(): value for name, value in message.items()}
