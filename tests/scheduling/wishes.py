"""Random constraints of pods other than volumes, and nodes that care: few keys and values, so that they meet."""

from random import Random
from typing import Any

from tests.support.objects import needs
from volsched.kube.meta import HOSTNAME, ZONE

NAMESPACES = ("db", "web")
APPS = ("a", "b")
KEYS = (ZONE, ZONE, HOSTNAME, "rack")
TAINTS = ("gpu", "spot")


def node_spec(random: Random) -> dict[str, Any]:
    taints = [
        {
            "key": random.choice(TAINTS),
            "value": "yes",
            "effect": random.choice(["NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute"]),
        }
        for _ in range(random.choices([0, 1, 2], [5, 2, 1])[0])
    ]
    return {"taints": taints, "unschedulable": random.random() < 0.05}


def allocatable(random: Random) -> dict[str, str]:
    if random.random() < 0.3:
        return {}
    found = {"cpu": random.choice(["1", "2", "4"]), "memory": random.choice(["1Gi", "4Gi"])}
    if random.random() < 0.7:
        found["pods"] = random.choice(["1", "2", "5"])
    if random.random() < 0.3:
        found["example.com/gpu"] = "1"
    return found


def namespace_labels(random: Random) -> dict[str, str]:
    return random.choice([{}, {"team": "x"}, {"team": "y"}])


def pod_labels(random: Random) -> dict[str, str]:
    labels = {"app": random.choice(APPS)} if random.random() < 0.9 else {}
    return labels | random.choice([{}, {}, {"version": "1"}, {"version": "2"}])


def pod_spec(random: Random, much: float) -> dict[str, Any]:
    """`much`: how likely each constraint is."""
    spec: dict[str, Any] = {}
    if random.random() < much:
        spec["containers"] = [_container(random) for _ in range(random.randint(1, 2))]
    if random.random() < 0.3 * much:
        spec["initContainers"] = [_container(random, restartPolicy=random.choice(["", "Always"]))]
    if random.random() < much:
        keys = random.sample([*TAINTS, "node.kubernetes.io/unschedulable"], random.randint(1, 2))
        spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in keys]
    if random.random() < 0.4 * much:
        spec["nodeSelector"] = {"disk": random.choice(["ssd", "hdd"])}
    affinity = {
        "nodeAffinity": _node_affinity(random, much),
        "podAffinity": _pod_affinity(random, 0.4 * much),
        "podAntiAffinity": _pod_affinity(random, 0.8 * much),
    }
    spec["affinity"] = {name: given for name, given in affinity.items() if given}
    if random.random() < 0.6 * much:
        spec["topologySpreadConstraints"] = [_spread(random) for _ in range(random.randint(1, 2))]
    return spec


def _container(random: Random, **more: Any) -> dict[str, Any]:
    requests = {"cpu": random.choice(["100m", "500m", "1", "3"]), "memory": random.choice(["100Mi", "1Gi"])}
    if random.random() < 0.1:
        requests["example.com/gpu"] = "1"
    kept = random.sample(sorted(requests), random.randint(0, len(requests)))
    return {"name": "c", "resources": {"requests": {name: requests[name] for name in kept}}, **more}


def _node_affinity(random: Random, much: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if random.random() < 0.4 * much:
        fields = [{"key": "metadata.name", "operator": "In", "values": [f"n{random.randrange(6)}"]}]
        terms = [{"matchExpressions": [_node_need(random)]}, {"matchExpressions": [_node_need(random)]}]
        named = {"matchFields": fields * random.randint(1, 2)}
        chosen = random.choice([[terms[0]], terms, [named], [named, {"matchFields": [_other(random)]}]])
        found["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": chosen}
    if random.random() < 0.5 * much:
        found["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": random.choice([1, 10]), "preference": {"matchExpressions": [_node_need(random)]}}
            for _ in range(random.randint(1, 2))
        ]
    return found


def _other(random: Random) -> dict[str, Any]:
    operator = random.choice(["In", "NotIn"])
    return {"key": "metadata.name", "operator": operator, "values": [f"n{random.randrange(6)}"]}


def _node_need(random: Random) -> dict[str, Any]:
    return random.choice([needs("disk", "In", "ssd"), needs(ZONE, "NotIn", "a"), needs("rack", "Exists")])


def _selector(random: Random) -> dict[str, Any] | None:
    return random.choice(
        [
            {"matchLabels": {"app": random.choice(APPS)}},
            {"matchExpressions": [needs("app", "In", random.choice(APPS))]},
            {"matchExpressions": [needs("app", "Exists")]},
            {},
            None,
        ]
    )


def _pod_term(random: Random) -> dict[str, Any]:
    term: dict[str, Any] = {"topologyKey": random.choice(KEYS), "labelSelector": _selector(random)}
    if random.random() < 0.2:
        term["namespaces"] = [random.choice(NAMESPACES)]
    if random.random() < 0.2:
        term["namespaceSelector"] = random.choice([{}, {"matchLabels": {"team": "x"}}])
    if random.random() < 0.2:
        term["matchLabelKeys" if random.random() < 0.5 else "mismatchLabelKeys"] = ["version"]
    return {name: value for name, value in term.items() if value is not None}


def _pod_affinity(random: Random, much: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if random.random() < much:
        terms = [_pod_term(random) for _ in range(random.choices([1, 2], [3, 1])[0])]
        found["requiredDuringSchedulingIgnoredDuringExecution"] = terms
    if random.random() < much:
        found["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": random.choice([1, 5]), "podAffinityTerm": _pod_term(random)}
        ]
    return found


def _spread(random: Random) -> dict[str, Any]:
    given: dict[str, Any] = {
        "maxSkew": random.choice([1, 1, 2]),
        "topologyKey": random.choice(KEYS),
        "whenUnsatisfiable": random.choice(["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": _selector(random),
    }
    if random.random() < 0.2:
        given["minDomains"] = random.randint(1, 3)
    if random.random() < 0.3:
        given["nodeTaintsPolicy"] = random.choice(["Honor", "Ignore"])
        given["nodeAffinityPolicy"] = random.choice(["Honor", "Ignore"])
    if random.random() < 0.2:
        given["matchLabelKeys"] = ["version"]
    return {name: value for name, value in given.items() if value is not None}
