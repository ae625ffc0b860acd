"""A storage array in memory: domains with room, volumes that take time, and mishaps, as class parameters say."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from volsched.kube.quantity import NANO, Quantity, SuffixFamily, parse_quantity
from volsched.provisioning.class_parameters import (
    EXHAUSTED,
    HANG,
    RAISE,
    REFUSED,
    TOO_SMALL,
    WRONG_DOMAIN,
    ParameterError,
    StorageParameters,
    read_parameters,
)
from volsched.provisioning.driver import CreateVolume
from volsched.provisioning.protocol import Manifest, Surroundings
from volsched.provisioning.rules.driver_outcomes import Created, DriverCode, DriverRefusal
from volsched.provisioning.rules.topology_requirement import Term, ordered, term_text, terms_of

WITHOUT_END = "8191Pi"
"""What is published of a class whose room is not counted, where that of others is."""
NEVER = 1 << 62
Mishap = Callable[[CreateVolume, int], str]
"""What goes wrong with a call, given how many there were for the volume before; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asset:
    class_name: str
    bytes: int
    terms: tuple[Term, ...]
    ready_at: int
    handed_over: bool = False
    """Whoever asked for it knows that it is there."""
    published: bool = False
    """There is, or was, a volume for it."""
    adopted: bool = False
    """Known from its volume alone: made by an array in another process."""


@dataclass(slots=True)
class Array:
    seed: int = 0
    mishap: Mishap | None = None
    """In place of what the class says."""
    topology: bool = True
    _assets: dict[str, _Asset] = field(default_factory=dict)
    _calls: dict[str, int] = field(default_factory=dict)
    _classes: dict[str, StorageParameters] = field(default_factory=dict)
    _nodes: tuple[Mapping[str, str], ...] = ()
    _handles: dict[str, str] = field(default_factory=dict)
    """Volume → its asset."""
    _taken: dict[tuple[str, Term, bool], int] = field(default_factory=dict)
    """Class, domain, and whether it is handed over → bytes; counted on the way, not anew over all assets."""

    def create(self, request: CreateVolume, now: int) -> Created | DriverRefusal:
        try:
            wanted = read_parameters(request.parameters)
        except ParameterError as error:
            return DriverRefusal(DriverCode.INVALID_ARGUMENT, str(error))
        held = self._assets.get(request.name)
        if held is None:
            begun = self._begin(request, wanted, now)
            if isinstance(begun, DriverRefusal):
                return begun
            held = begun
            self._keep(request.name, held)
        if held.ready_at == NEVER:
            return DriverRefusal(DriverCode.DEADLINE_EXCEEDED, f"volume {request.name} is not made yet")
        if now < held.ready_at:
            return DriverRefusal(DriverCode.ABORTED, f"volume {request.name} is still being made", held.ready_at)
        self._keep(request.name, replace(held, handed_over=True))
        return Created(handle=request.name, bytes=held.bytes, topologies=held.terms)

    def delete(self, handle: str, now: int) -> DriverRefusal | None:  # noqa: ARG002 - a Driver's; deleting takes no time
        self._keep(handle, None)
        return None

    def finish(self, name: str) -> None:
        """A volume that hung is made after all."""
        self._keep(name, replace(self._assets[name], ready_at=0))

    def made(self) -> Collection[str]:
        return list(self._assets)

    def discard(self, name: str) -> bool:
        """One that had a volume may hold what somebody wants to keep; one still being made cannot be stopped."""
        held = self._assets.get(name)
        if held is None or held.published or held.ready_at == NEVER:
            return False
        self.delete(name, 0)
        return True

    def observe(self, seen: Surroundings) -> None:
        self._classes = {}
        for manifest in seen.classes:
            try:
                parameters = read_parameters(manifest.get("parameters") or {})
            except ParameterError:
                # Whoever asks for a volume of the class is told.
                continue
            self._classes[manifest["metadata"]["name"]] = parameters
        self._nodes = tuple(node["metadata"].get("labels") or {} for node in seen.nodes)
        gone = {name for name in seen.changed if name not in seen.volumes}
        for name in set(seen.changed) - gone:
            spec = seen.volumes[name]["spec"]
            handle = self._handles[name] = str(spec.get("csi", {}).get("volumeHandle"))
            held = self._assets.get(handle) or _adopted(spec)
            self._keep(handle, replace(held, published=True, handed_over=True))
        if len(self._handles) - len(gone & self._handles.keys()) != len(seen.volumes):
            # Whoever told us of volumes before has died since, and so has one of them.
            gone |= self._handles.keys() - seen.volumes.keys()
        for name in gone:
            handle = self._handles.pop(name, "")
            if handle in self._assets and self._assets[handle].adopted:
                self._keep(handle, None)

    def capacities(self) -> Sequence[Manifest]:
        """By class and domain; nothing at all as long as no class counts its room."""
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
        """The first domains that have room; where a pod waits, the first of all must be among them."""
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
        """All that is taken there, or only what somebody knows of."""
        known = self._taken.get((class_name, term, True), 0)
        return known if handed_over else known + self._taken.get((class_name, term, False), 0)

    def _keep(self, name: str, asset: _Asset | None) -> None:
        """Every change of an asset; None: it is gone."""
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
    """A volume that was made by an array in another process: all that is to be known is in its object."""
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
