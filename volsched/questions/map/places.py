"""The place of a volume among nodes grouped by any of their labels.

The node affinity of a volume selects the nodes that reach it. With one node, the volume is on that node; with
several, it is in the narrowest group that contains them all. Volumes of one place have the same affinity, so each
place is computed once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from volsched.kube.manifest import volume_reaches
from volsched.kube.meta import HOSTNAME, TOPOLOGY_LABELS, ZONE, zone_of

UNLABELLED = "-"
"""Shown in place of a label that a node does not have."""
Path = tuple[str, ...]
Labels = Mapping[str, Any]
MOST_KEYS = 20


class MapPlace(NamedTuple):
    path: Path
    """The groups that contain the place, the widest first."""
    node: str | None = None
    reached: bool = True
    """Whether any node reaches it."""


@dataclass(slots=True)
class MapPlaces:
    keys: Sequence[str]
    """Labels that group nodes, the widest first."""
    paths: dict[str, Path] = field(default_factory=dict)
    """Node → its path of groups."""
    _nodes: dict[str, Labels] = field(default_factory=dict)
    _by_label: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _label_keys: set[str] = field(default_factory=set)
    _known: dict[bytes, MapPlace] = field(default_factory=dict)
    _spelled: dict[tuple[str | None, str | None], MapPlace] = field(default_factory=dict)
    """A cache of places by their JSON texts, which are then not parsed again."""

    def put(self, name: str, labels_text: str | None) -> None:
        labels = _labels(labels_text)
        self._nodes[name] = labels
        self.paths[name] = tuple(
            str(labels.get(key) or (zone_of(labels) if key == ZONE else None) or UNLABELLED) for key in self.keys
        )
        self._label_keys.update(labels)
        for key, value in labels.items():
            self._by_label.setdefault((key, str(value)), set()).add(name)

    def of(self, affinity: str | None, labels: str | None) -> MapPlace:
        """The place of a volume with this required node affinity and these labels, both as JSON."""
        texts = affinity, labels
        place = self._spelled.get(texts)
        if place is None:
            required = None if affinity is None else orjson.loads(affinity)
            place = self._spelled[texts] = self._place_from(required, _labels(labels))
        return place

    def _place_from(self, required: Any, labels: Labels) -> MapPlace:
        zones = {key: value for key, value in labels.items() if key in TOPOLOGY_LABELS and key in self._label_keys}
        if required is None and not zones:
            return MapPlace(())
        if not zones and (only := _only_label(required)) is not None:
            return self._place_of_nodes(self._by_label.get(only, set()))
        place_key = orjson.dumps([required, zones])
        if place_key not in self._known:
            self._known[place_key] = self._place(required, zones)
        return self._known[place_key]

    def label_keys(self) -> list[str]:
        """Labels that can group nodes, because several nodes share a value; topology labels first."""
        values: dict[str, int] = {}
        for key, _ in self._by_label:
            values[key] = values.get(key, 0) + 1
        grouping = [
            key for key, count in values.items() if key != HOSTNAME and (count < len(self._nodes) or count == 1)
        ]
        topology = sorted(grouping, key=lambda key: ("topology" not in key, key))
        return topology[:MOST_KEYS]

    def _place(self, required: Any, zones: Mapping[str, Any]) -> MapPlace:
        return self._place_of_nodes(self._nodes_reaching(required, zones))

    def _place_of_nodes(self, nodes: set[str]) -> MapPlace:
        if len(nodes) == 1:
            (name,) = nodes
            return MapPlace(self.paths[name], name)
        if not nodes:
            return MapPlace((), None, reached=False)
        return MapPlace(_common([self.paths[name] for name in nodes]))

    def _nodes_reaching(self, required: Any, zones: Mapping[str, Any]) -> set[str]:
        labels = [(key, str(value)) for key, value in zones.items()]
        terms = [] if required is None else required.get("nodeSelectorTerms") or []
        parts = terms[0].get("matchExpressions") or [] if len(terms) == 1 else []
        simple = [it for it in parts if it.get("operator") == "In" and len(it.get("values") or ()) == 1]
        if required is None or (len(simple) == len(parts) and len(terms) == 1 and not terms[0].get("matchFields")):
            labels += [(it["key"], it["values"][0]) for it in simple]
            sets = [self._by_label.get(label, set()) for label in labels]
            return set.intersection(*sets) if sets else set(self._nodes)
        sets = [self._by_label.get(label, set()) for label in labels]
        volume = {"spec": {"nodeAffinity": {"required": required}}}
        return {
            name
            for name, labels_of_node in self._nodes.items()
            if all(name in them for them in sets)
            and volume_reaches(volume, {"metadata": {"labels": labels_of_node}})
        }


def _only_label(required: Any) -> tuple[str, str] | None:
    """The only label, with its only value, that a local volume's affinity requires."""
    match required:
        case {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} as term
            ]
        }:
            return None if "matchFields" in term else (key, value)
    return None


def _labels(text: str | None) -> Labels:
    labels = None if text is None else orjson.loads(text)
    return labels if isinstance(labels, dict) else {}


def _common(paths: list[Path]) -> Path:
    """The longest common prefix of the paths."""
    common: list[str] = []
    for values in zip(*paths, strict=True):
        if len(set(values)) > 1:
            break
        common.append(values[0])
    return tuple(common)
