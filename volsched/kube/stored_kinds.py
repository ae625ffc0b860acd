"""Kinds that are kept as they are given: nothing here decides by them, but clients of the API do.

Only their metadata is read. Each has a class of its own, because a value is known by its class.
"""

from dataclasses import dataclass
from typing import Annotated

from volsched.kube.field_readers import at
from volsched.kube.meta import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """An object of a kind that is not in the log."""

    meta: Annotated[Metadata, at("metadata")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    meta: Annotated[Metadata, at("metadata")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudget:
    meta: Annotated[Metadata, at("metadata")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    meta: Annotated[Metadata, at("metadata")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRevision:
    """A version of a StatefulSet's template, as its controller in kube-controller-manager remembers it."""

    meta: Annotated[Metadata, at("metadata")]
