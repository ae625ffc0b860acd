"""An object of any kind as a value, and the kinds whose values have no fields of their own."""

from dataclasses import dataclass
from typing import Annotated

from volsched.kube.meta import Metadata, at
from volsched.kube.storage import (
    Claim,
    CSIDriver,
    CSINode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from volsched.kube.workloads import EventObject, Namespace, Node, Pod, PodDisruptionBudget, StatefulSet

# Kinds that are stored as given: no rule here reads them, but clients of the API do.
#
# Only their metadata is read. Each has its own class, because a value is identified by its class.


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """An object of a kind that is not in the log."""

    meta: Annotated[Metadata, at("metadata")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    meta: Annotated[Metadata, at("metadata")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    meta: Annotated[Metadata, at("metadata")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRevision:
    """A version of a StatefulSet's template, as kube-controller-manager stores it."""

    meta: Annotated[Metadata, at("metadata")]


Object = (
    Node
    | Namespace
    | StorageClass
    | Volume
    | Claim
    | Pod
    | CSIDriver
    | CSINode
    | StorageCapacity
    | VolumeAttachment
    | EventObject
    | StatefulSet
    | Service
    | ControllerRevision
    | PodDisruptionBudget
    | PriorityClass
    | Bare
)
