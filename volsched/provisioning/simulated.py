"""`volsched.io/simulated`: volumes of a storage array that exists in memory only, for playing a cluster.

Zonal, multi-zonal or by rack, with latency, room and mishaps, as the class parameters say (`parameters`). The
volumes are objects like any other; a process that starts anew learns of them from the store.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from volsched.kube.quantity import NANO, Quantity, SuffixFamily
from volsched.provisioning.class_parameters import ParameterError, read_parameters
from volsched.provisioning.driver import CreateVolume, Driver
from volsched.provisioning.protocol import Manifest, Surroundings, Unfinished
from volsched.provisioning.rules.driver_outcomes import NO_SELECTOR, UNDECIDED, DriverRefusal
from volsched.provisioning.rules.external_contract import term_selector
from volsched.provisioning.rules.topology_requirement import (
    SelectedNode,
    TopologyError,
    TopologyRequirement,
    delayed_requirement,
    immediate_requirement,
)
from volsched.provisioning.storage_array import Array
from volsched.pv_controller.rules import PluginError, Provision, VolumePlugin, held_claim, held_class
from volsched.runtime.clock import SECOND

SIMULATED = "volsched.io/simulated"
CSI_DRIVER = "simulated.volsched.io"
"""What volumes call it: the name of a driver has no slash."""
ASK_AGAIN = 1 * SECOND


@dataclass(slots=True)
class Simulated:
    driver: Driver = field(default_factory=Array)
    plugin: VolumePlugin = field(default_factory=lambda: VolumePlugin(name=SIMULATED, mount_options=True))
    _seen: Surroundings = field(default_factory=Surroundings)

    def provision(self, request: Provision, now: int) -> Manifest | Unfinished:
        claim, storage_class = held_claim(request.claim).value, held_class(request.storage_class).value
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

    def observe(self, seen: Surroundings) -> None:
        self._seen = seen
        self.driver.observe(seen)

    def capacities(self) -> Sequence[Manifest]:
        return self.driver.capacities()

    def made(self) -> Collection[str]:
        return self.driver.made()

    def discard(self, name: str) -> bool:
        return self.driver.discard(name)

    def _requirement(self, request: Provision) -> TopologyRequirement:
        """In one domain the scheduler has honoured the class already; several are restricted by it here."""
        claim, storage_class = held_claim(request.claim).value, held_class(request.storage_class).value
        nodes = [node["metadata"].get("labels") or {} for node in self._seen.nodes]
        allowed = storage_class.allowed_topologies
        try:
            wanted = read_parameters(storage_class.parameters)
            if request.node is None:
                found = immediate_requirement(wanted.keys, allowed=allowed, nodes=nodes, claim_name=claim.name)
                return found or TopologyRequirement()
            metadata = request.node["metadata"]
            node = SelectedNode(name=metadata["name"], labels=metadata.get("labels") or {}, keys=wanted.keys)
            alone = wanted.replicas == 1
            return delayed_requirement(node, strict=alone, allowed=() if alone else allowed, nodes=nodes)
        except (TopologyError, ParameterError) as error:
            raise PluginError(str(error)) from error
