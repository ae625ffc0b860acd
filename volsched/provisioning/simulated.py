"""`volsched.io/simulated`: volumes of a storage array in memory, with latency and faults by class parameters."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from volsched.kube.meta import ZONE
from volsched.kube.quantity import NANO, Quantity, QuantityError, SuffixFamily, parse_quantity
from volsched.provisioning.protocol import CreateVolume, Driver, Manifest, Surroundings, Unfinished
from volsched.provisioning.rules import (
    NO_SELECTOR,
    UNDECIDED,
    Created,
    DriverCode,
    DriverRefusal,
    SelectedNode,
    Term,
    TopologyError,
    TopologyRequirement,
    delayed_requirement,
    immediate_requirement,
    ordered,
    term_selector,
    term_text,
    terms_of,
)
from volsched.pv_controller.rules import PluginError, Provision, VolumePlugin, parsed_claim, parsed_class
from volsched.runtime.clock import SECOND

# The class parameters of simulated storage.
#
# | parameter | default | meaning |
# |---|---|---|
# | `topologyKeys` | `topology.kubernetes.io/zone` | node labels that make a domain, separated by commas |
# | `replicas` | 1 | number of domains of every volume |
# | `capacityPerDomain` | unlimited | capacity of the class in one domain; it is published |
# | `latencySeconds` | 0 | time to create a volume |
# | `failure` | none | `exhausted`, `refused`, `hang`, `raise`, `too-small` or `wrong-domain` |
# | `failureRate` | 1 | rate of the failure, from 0 to 1; the seed determines the affected volumes |

EXHAUSTED, REFUSED, HANG, RAISE, TOO_SMALL, WRONG_DOMAIN = FAILURES = (
    "exhausted",
    "refused",
    "hang",
    "raise",
    "too-small",
    "wrong-domain",
)


class ParameterError(ValueError):
    """An invalid class parameter; the message names it, and the valid values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageParameters:
    keys: tuple[str, ...] = (ZONE,)
    replicas: int = 1
    room: int | None = None
    latency: int = 0
    failure: str = ""
    failure_rate: float = 1.0


def read_parameters(given: Mapping[str, str]) -> StorageParameters:
    """Raises ParameterError if a parameter is unknown or cannot be parsed."""
    unknown = sorted(given.keys() - _READERS.keys())
    if unknown:
        raise ParameterError(f"parameters.{unknown[0]} is unknown; there are {', '.join(_READERS)}")
    fields: dict[str, Any] = {}
    for name, text in given.items():
        field_name, read, remedy = _READERS[name]
        try:
            fields[field_name] = read(text)
        except (ValueError, QuantityError):
            raise ParameterError(f'parameters.{name} is "{text}"; {remedy}') from None
    return StorageParameters(**fields)


def _keys(text: str) -> tuple[str, ...]:
    keys = tuple(filter(None, (key.strip() for key in text.split(","))))
    return keys or _refuse()


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and int(text) > 0 else _refuse()


def _microseconds(text: str) -> int:
    return int(float(text) * SECOND) if float(text) >= 0 else _refuse()


def _failure(text: str) -> str:
    return text if text in FAILURES else _refuse()


def _rate(text: str) -> float:
    return float(text) if 0 <= float(text) <= 1 else _refuse()


def _refuse() -> Any:
    raise ValueError


_READERS: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "topologyKeys": ("keys", _keys, "write label keys, separated by commas"),
    "replicas": ("replicas", _count, "write a number from 1 on"),
    "capacityPerDomain": ("room", lambda text: parse_quantity(text).value(), "write a size such as 100Gi"),
    "latencySeconds": ("latency", _microseconds, "write a number of seconds from 0 on"),
    "failure": ("failure", _failure, f"write one of {', '.join(FAILURES)}"),
    "failureRate": ("failure_rate", _rate, "write a number from 0 to 1"),
}


# A storage array in memory: domains with capacity, latency, and faults, by class parameters.

WITHOUT_END = "8191Pi"
"""The capacity published for a class without a limit while other classes have one."""
NEVER = 1 << 62
Mishap = Callable[[CreateVolume, int], str]
"""The fault of a call, given the number of earlier calls for the volume; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asset:
    class_name: str
    bytes: int
    terms: tuple[Term, ...]
    ready_at: int
    handed_over: bool = False
    """Whether the caller knows that the asset exists."""
    published: bool = False
    """Whether a volume object for it exists or existed."""
    adopted: bool = False
    """Known only from its volume: created by an array in another process."""


@dataclass(slots=True)
class Array:
    seed: int = 0
    mishap: Mishap | None = None
    """Overrides the class's parameters."""
    topology: bool = True
    _assets: dict[str, _Asset] = field(default_factory=dict)
    _calls: dict[str, int] = field(default_factory=dict)
    _classes: dict[str, StorageParameters] = field(default_factory=dict)
    _nodes: tuple[Mapping[str, str], ...] = ()
    _handles: dict[str, str] = field(default_factory=dict)
    """Volume → its asset."""
    _taken: dict[tuple[str, Term, bool], int] = field(default_factory=dict)
    """(class, domain, handed over) → bytes in use; counted incrementally, not by a scan of all assets."""

    def create(self, request: CreateVolume, now: int) -> Created | DriverRefusal:
        try:
            wanted = read_parameters(request.parameters)
        except ParameterError as error:
            return DriverRefusal(DriverCode.INVALID_ARGUMENT, str(error))
        asset = self._assets.get(request.name)
        if asset is None:
            begun = self._begin(request, wanted, now)
            if isinstance(begun, DriverRefusal):
                return begun
            asset = begun
            self._keep(request.name, asset)
        if asset.ready_at == NEVER:
            return DriverRefusal(DriverCode.DEADLINE_EXCEEDED, f"volume {request.name} is not created yet")
        if now < asset.ready_at:
            return DriverRefusal(DriverCode.ABORTED, f"volume {request.name} is being created", asset.ready_at)
        self._keep(request.name, replace(asset, handed_over=True))
        return Created(handle=request.name, bytes=asset.bytes, topologies=asset.terms)

    def delete(self, handle: str, now: int) -> DriverRefusal | None:  # noqa: ARG002 - a Driver's; deleting takes no time
        self._keep(handle, None)
        return None

    def finish(self, name: str) -> None:
        """Complete a volume that hung."""
        self._keep(name, replace(self._assets[name], ready_at=0))

    def volume_names(self) -> Collection[str]:
        return list(self._assets)

    def discard(self, name: str) -> bool:
        """Keeps storage that had a volume, since it may hold data, and storage that is still being created."""
        asset = self._assets.get(name)
        if asset is None or asset.published or asset.ready_at == NEVER:
            return False
        self.delete(name, 0)
        return True

    def observe(self, surroundings: Surroundings) -> None:
        self._classes = {}
        for manifest in surroundings.classes:
            try:
                parameters = read_parameters(manifest.get("parameters") or {})
            except ParameterError:
                # The error is reported when a volume of the class is requested.
                continue
            self._classes[manifest["metadata"]["name"]] = parameters
        self._nodes = tuple(node["metadata"].get("labels") or {} for node in surroundings.nodes)
        gone = {name for name in surroundings.changed if name not in surroundings.volumes}
        for name in set(surroundings.changed) - gone:
            spec = surroundings.volumes[name]["spec"]
            handle = self._handles[name] = str(spec.get("csi", {}).get("volumeHandle"))
            asset = self._assets.get(handle) or _adopted(spec)
            self._keep(handle, replace(asset, published=True, handed_over=True))
        if len(self._handles) - len(gone & self._handles.keys()) != len(surroundings.volumes):
            # An earlier process died before it reported a deletion.
            gone |= self._handles.keys() - surroundings.volumes.keys()
        for name in gone:
            handle = self._handles.pop(name, "")
            if handle in self._assets and self._assets[handle].adopted:
                self._keep(handle, None)

    def capacities(self) -> Sequence[Manifest]:
        """Capacities by class and domain; none while no class has a limit."""
        if all(it.room is None for it in self._classes.values()):
            return ()
        return [
            {
                "storageClassName": name,
                "nodeTopology": {"matchLabels": dict(term)},
                "capacity": WITHOUT_END if it.room is None else _size(it.room - self._used(name, term, True)),
            }
            for name, it in sorted(self._classes.items())
            for term in ordered(terms_of(self._nodes, it.keys))
        ]

    def _begin(self, request: CreateVolume, wanted: StorageParameters, now: int) -> _Asset | DriverRefusal:
        mishap = self._next_mishap(request, wanted)
        if mishap == RAISE:
            raise RuntimeError("the array's controller has crashed")
        if mishap == REFUSED:
            return DriverRefusal(DriverCode.INTERNAL, "the array refuses")
        preferred = request.requirement.preferred if request.requirement is not None else ((),)
        if mishap == WRONG_DOMAIN:
            every = ordered(terms_of(self._nodes, wanted.keys))
            preferred = tuple(term for term in every if term not in preferred[:1]) or preferred
        if len(preferred) < wanted.replicas:
            message = f"replicas: {wanted.replicas} need as many domains; allowed are {_texts(preferred)}"
            return DriverRefusal(DriverCode.INVALID_ARGUMENT, message)
        terms = None if mishap == EXHAUSTED else self._place(request, wanted, preferred)
        if terms is None:
            message = f"no room for {_size(request.bytes)} of class {request.class_name} in {_texts(preferred)}"
            return DriverRefusal(DriverCode.RESOURCE_EXHAUSTED, message)
        size = request.bytes // 2 if mishap == TOO_SMALL else request.bytes
        ready_at = NEVER if mishap == HANG else now + wanted.latency
        return _Asset(class_name=request.class_name, bytes=size, terms=terms, ready_at=ready_at)

    def _next_mishap(self, request: CreateVolume, wanted: StorageParameters) -> str:
        if self.mishap is None and not wanted.failure:
            return ""
        before = self._calls.get(request.name, 0)
        self._calls[request.name] = before + 1
        if self.mishap is not None:
            return self.mishap(request, before)
        lot = Random(f"{self.seed}/{request.name}/{before}").random()
        return wanted.failure if lot < wanted.failure_rate else ""

    def _place(
        self, request: CreateVolume, wanted: StorageParameters, preferred: Sequence[Term]
    ) -> tuple[Term, ...] | None:
        """The first domains with room; for a pinned request, the very first must be among them."""
        chosen: list[Term] = []
        for place, term in enumerate(preferred):
            used = self._used(request.class_name, term, False)
            if wanted.room is None or used + request.bytes <= wanted.room:
                chosen.append(term)
            elif place == 0 and request.pinned:
                return None
            if len(chosen) == wanted.replicas:
                return tuple(chosen)
        return None

    def _used(self, class_name: str, term: Term, handed_over: bool) -> int:
        """The bytes in use in a domain, or only those handed over."""
        known = self._taken.get((class_name, term, True), 0)
        return known if handed_over else known + self._taken.get((class_name, term, False), 0)

    def _keep(self, name: str, asset: _Asset | None) -> None:
        """Set or remove (None) an asset; every change goes through here."""
        before = self._assets.pop(name, None)
        if before is not None:
            self._count(before, -before.bytes)
        if asset is not None:
            self._assets[name] = asset
            self._count(asset, asset.bytes)

    def _count(self, asset: _Asset, size: int) -> None:
        for term in asset.terms:
            place = asset.class_name, term, asset.handed_over
            self._taken[place] = self._taken.get(place, 0) + size


def _adopted(spec: Manifest) -> _Asset:
    """The asset of a volume created by an array in another process, from the volume's object."""
    required = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms", ())
    terms = tuple(
        tuple(sorted((it["key"], it["values"][0]) for it in term.get("matchExpressions", ()) if it.get("values")))
        for term in required
    )
    size = parse_quantity(str((spec.get("capacity") or {}).get("storage", "0"))).value()
    return _Asset(
        class_name=str(spec.get("storageClassName", "")), bytes=size, terms=terms, ready_at=0, adopted=True
    )


def _size(size: int) -> str:
    return str(Quantity(max(size, 0) * NANO, SuffixFamily.BINARY))


def _texts(terms: Sequence[Term]) -> str:
    return ", ".join(map(term_text, terms))


# Zonal, multi-zonal or by rack, with latency, capacity and faults by class parameters. The volumes are ordinary
# objects; a restarted process reads them from the store.

SIMULATED = "volsched.io/simulated"
CSI_DRIVER = "simulated.volsched.io"
"""The driver's name in volumes, which may not contain a slash."""
ASK_AGAIN = 1 * SECOND


@dataclass(slots=True)
class Simulated:
    driver: Driver = field(default_factory=Array)
    plugin: VolumePlugin = field(default_factory=lambda: VolumePlugin(name=SIMULATED, mount_options=True))
    _surroundings: Surroundings = field(default_factory=Surroundings)

    def provision(self, request: Provision, now: int) -> Manifest | Unfinished:
        claim, storage_class = parsed_claim(request.claim).value, parsed_class(request.storage_class).value
        if claim.selector is not None:
            raise PluginError(NO_SELECTOR)
        call = CreateVolume(
            name=request.volume_name,
            bytes=claim.size.value(),
            class_name=storage_class.name,
            parameters=storage_class.parameters,
            requirement=self._requirement(request),
            pinned=request.node is not None,
        )
        answer = self.driver.create(call, now)
        if isinstance(answer, DriverRefusal):
            if answer.code in UNDECIDED:
                return Unfinished(answer.again_at or now + ASK_AGAIN)
            raise PluginError(f"{answer.code}: {answer.message}")
        spec = {
            "capacity": {"storage": str(Quantity(answer.bytes * NANO, SuffixFamily.BINARY))},
            "accessModes": list(claim.access_modes),
            "volumeMode": claim.mode,
            "csi": {"driver": CSI_DRIVER, "volumeHandle": answer.handle},
        }
        terms = [term_selector(term) for term in answer.topologies if term]
        if terms:
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        if request.storage_class.get("mountOptions"):
            spec["mountOptions"] = list(request.storage_class["mountOptions"])
        return {"spec": spec}

    def delete(self, volume: Manifest, now: int) -> Unfinished | None:
        refused = self.driver.delete(volume["spec"].get("csi", {}).get("volumeHandle", ""), now)
        if refused is None:
            return None
        if refused.code in UNDECIDED:
            return Unfinished(refused.again_at or now + ASK_AGAIN)
        raise PluginError(f"{refused.code}: {refused.message}")

    def recycle(self, volume: Manifest, now: int) -> Unfinished | None:  # noqa: ARG002 - it never does
        raise PluginError(
            f"{self.plugin.name} does not recycle volumes; set the reclaim policy to Delete or Retain"
        )

    def observe(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self.driver.observe(surroundings)

    def capacities(self) -> Sequence[Manifest]:
        return self.driver.capacities()

    def volume_names(self) -> Collection[str]:
        return self.driver.volume_names()

    def discard(self, name: str) -> bool:
        return self.driver.discard(name)

    def _requirement(self, request: Provision) -> TopologyRequirement:
        """The class's allowed topologies are applied here only for volumes in several domains; the scheduler has
        applied them for those in one."""
        claim, storage_class = parsed_claim(request.claim).value, parsed_class(request.storage_class).value
        nodes = [node["metadata"].get("labels") or {} for node in self._surroundings.nodes]
        allowed = storage_class.allowed_topologies
        try:
            wanted = read_parameters(storage_class.parameters)
            if request.node is None:
                requirement = immediate_requirement(
                    wanted.keys, allowed=allowed, nodes=nodes, claim_name=claim.name
                )
                return requirement or TopologyRequirement()
            metadata = request.node["metadata"]
            node = SelectedNode(name=metadata["name"], labels=metadata.get("labels") or {}, keys=wanted.keys)
            alone = wanted.replicas == 1
            return delayed_requirement(node, strict=alone, allowed=() if alone else allowed, nodes=nodes)
        except (TopologyError, ParameterError) as error:
            raise PluginError(str(error)) from error
