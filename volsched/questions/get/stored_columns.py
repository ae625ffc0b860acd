"""The columns of kinds that are only kept, as kubectl's users know them."""

from collections.abc import Mapping
from typing import Any

from volsched.kube.manifest import metadata, spec
from volsched.questions.get.cells import AGE, NAME, NONE, Column, Item, field_at, listed, shown


def _controller(item: Item) -> str:
    references = metadata(item.manifest).get("ownerReferences", ())
    owner: Any = next((it for it in references if isinstance(it, dict) and it.get("controller")), None)
    if owner is None:
        return NONE
    group = str(owner.get("apiVersion", "")).rpartition("/")[0]
    return f"{str(owner.get('kind', '')).lower()}{group and f'.{group}'}/{owner.get('name', '')}"


def _ports(item: Item) -> str:
    ports = spec(item.manifest).get("ports", ())
    return listed(f"{it.get('port')}/{it.get('protocol', 'TCP')}" for it in ports if isinstance(it, dict))


def _selector(item: Item) -> str:
    selector = spec(item.manifest).get("selector")
    return listed(f"{name}={value}" for name, value in selector.items()) if isinstance(selector, dict) else NONE


STORED_COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "service": (
        NAME,
        Column("TYPE", field_at("spec", "type", missing="ClusterIP")),
        Column("CLUSTER-IP", field_at("spec", "clusterIP")),
        Column("EXTERNAL-IP", lambda item: listed(spec(item.manifest).get("externalIPs", ()))),
        Column("PORT(S)", _ports),
        AGE,
        Column("SELECTOR", _selector, wide=True),
    ),
    "revision": (
        NAME,
        Column("CONTROLLER", _controller),
        Column("REVISION", lambda item: shown(item.manifest.get("revision"), missing="0")),
        AGE,
    ),
    "disruptionbudget": (
        NAME,
        Column("MIN AVAILABLE", field_at("spec", "minAvailable", missing="N/A")),
        Column("MAX UNAVAILABLE", field_at("spec", "maxUnavailable", missing="N/A")),
        Column("ALLOWED DISRUPTIONS", field_at("status", "disruptionsAllowed", missing="0")),
        AGE,
    ),
    "priorityclass": (
        NAME,
        Column("VALUE", field_at("value", missing="0")),
        Column("GLOBAL-DEFAULT", field_at("globalDefault", missing="false")),
        AGE,
        Column("PREEMPTIONPOLICY", field_at("preemptionPolicy", missing="PreemptLowerPriority")),
    ),
    "lease": (NAME, Column("HOLDER", field_at("spec", "holderIdentity")), AGE),
}
