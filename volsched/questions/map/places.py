"""Where a volume is, among nodes grouped by any of their labels.

A volume says by its node affinity which nodes reach it. Where that is one node, it is on that node; where it is
several, it is in the narrowest group that holds them all. Volumes of one place share their affinity, so that each
is worked out once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from volsched.kube.manifest import volume_reaches
from volsched.kube.meta import HOSTNAME, TOPOLOGY_LABELS, ZONE, zone_of

UNLABELLED = "-"
"""In place of a label that a node does not have."""
Path = tuple[str, ...]
Labels = Mapping[str, Any]
MOST_KEYS = 20


class MapPlace(NamedTuple):
    path: Path
    """The groups that it is in, the widest first."""
    node: str | None = None
    reached: bool = True
    """Some node reaches it."""


@dataclass(slots=True)
class MapPlaces:
    keys: Sequence[str]
    """Labels of nodes, the widest first."""
    paths: dict[str, Path] = field(default_factory=dict)
    """Node → its groups."""
    _nodes: dict[str, Labels] = field(default_factory=dict)
    _by_label: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _label_keys: set[str] = field(default_factory=set)
    _known: dict[bytes, MapPlace] = field(default_factory=dict)
    _spelled: dict[tuple[str | None, str | None], MapPlace] = field(default_factory=dict)
    """The same by the texts themselves, which need not be parsed to be found again."""

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
        """Of a volume with this required node affinity and these labels, both as JSON."""
        spelled = affinity, labels
        place = self._spelled.get(spelled)
        if place is None:
            required = None if affinity is None else orjson.loads(affinity)
            place = self._spelled[spelled] = self._of(required, _labels(labels))
        return place

    def _of(self, required: Any, labels: Labels) -> MapPlace:
        zones = {key: value for key, value in labels.items() if key in TOPOLOGY_LABELS and key in self._label_keys}
        if required is None and not zones:
            return MapPlace(())
        if not zones and (only := _only_label(required)) is not None:
            return self._placed(self._by_label.get(only, set()))
        known = orjson.dumps([required, zones])
        if known not in self._known:
            self._known[known] = self._place(required, zones)
        return self._known[known]

    def label_keys(self) -> list[str]:
        """Labels that group nodes: several nodes share a value of them; the most telling first."""
        values: dict[str, int] = {}
        for key, _ in self._by_label:
            values[key] = values.get(key, 0) + 1
        grouping = [
            key for key, count in values.items() if key != HOSTNAME and (count < len(self._nodes) or count == 1)
        ]
        topology = sorted(grouping, key=lambda key: ("topology" not in key, key))
        return topology[:MOST_KEYS]

    def _place(self, required: Any, zones: Mapping[str, Any]) -> MapPlace:
        return self._placed(self._reaching(required, zones))

    def _placed(self, nodes: set[str]) -> MapPlace:
        if len(nodes) == 1:
            (name,) = nodes
            return MapPlace(self.paths[name], name)
        if not nodes:
            return MapPlace((), None, reached=False)
        return MapPlace(_common([self.paths[name] for name in nodes]))

    def _reaching(self, required: Any, zones: Mapping[str, Any]) -> set[str]:
        labels = [(key, str(value)) for key, value in zones.items()]
        terms = [] if required is None else required.get("nodeSelectorTerms") or []
        parts = terms[0].get("matchExpressions") or [] if len(terms) == 1 else []
        simple = [it for it in parts if it.get("operator") == "In" and len(it.get("values") or ()) == 1]
        if required is None or (len(simple) == len(parts) and len(terms) == 1 and not terms[0].get("matchFields")):
            labels += [(it["key"], it["values"][0]) for it in simple]
            sets = [self._by_label.get(label, set()) for label in labels]
            return set.intersection(*sets) if sets else set(self._nodes)
        within = [self._by_label.get(label, set()) for label in labels]
        volume = {"spec": {"nodeAffinity": {"required": required}}}
        return {
            name
            for name, labels_of_node in self._nodes.items()
            if all(name in them for them in within)
            and volume_reaches(volume, {"metadata": {"labels": labels_of_node}})
        }


def _only_label(required: Any) -> tuple[str, str] | None:
    """The one label, with its one value, that a local volume's affinity asks for."""
    match required:
        case {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} as term
            ]
        }:
            return None if "matchFields" in term else (key, value)
    return None


def _labels(text: str | None) -> Labels:
    found = None if text is None else orjson.loads(text)
    return found if isinstance(found, dict) else {}


def _common(paths: list[Path]) -> Path:
    """What all of them begin with."""
    shared: list[str] = []
    for values in zip(*paths, strict=True):
        if len(set(values)) > 1:
            break
        shared.append(values[0])
    return tuple(shared)
