"""Bindings of any scheduler that are in flight or stuck, read from the objects: other schedulers keep no record.

Binding is several writes by several parties: a volume's claimRef, a claim's selected node, its volumeName, and the
mark of completion. A claim that has some of these, but not all, is in flight.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection

from volsched.kube.manifest import Manifest, annotations, claim_is_bound, claim_of, metadata, spec, uid
from volsched.kube.meta import BETA_STORAGE_PROVISIONER, BOUND_BY_CONTROLLER, SELECTED_NODE, STORAGE_PROVISIONER
from volsched.log.events.fold import ObjectState
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.event_audit import last_written
from volsched.log.reads.tail import event
from volsched.questions.audit.answers import Answer, time_text
from volsched.questions.claims.parameters import HalfBoundParameters
from volsched.questions.context import QuestionContext
from volsched.questions.history.moments import duration_of


class BindStep(StrEnum):
    PREBOUND = "prebound"
    """A volume is reserved for the claim, which does not name it yet."""
    PROVISIONING = "provisioning"
    """A node was selected, and there is no volume yet."""
    HALF_BOUND = "half-bound"
    """The claim names its volume, and the binding is not complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfBound:
    claim: str
    step: BindStep
    detail: str
    volume: str | None = None
    node: str | None = None
    written: tuple[str, tuple[str, ...]]
    """The stream and the field whose last write began this step."""


def in_flight(context: QuestionContext, parameters: HalfBoundParameters) -> Answer:
    oldest = context.now - duration_of(parameters.older_than)
    with context.database.read() as connection:
        view = view_at_head(connection)
        objects = {
            f"{noun}/{key}": state.manifest
            for noun in ("volume", "claim", "pod")
            for key, state in view.every(noun)
            if isinstance(state, ObjectState) and state.manifest is not None
        }
        users = claim_users(objects)
        items = []
        for binding in half_bound(objects):
            since = _since(connection, *binding.written)
            if since is not None and since > oldest:
                continue
            items.append(
                {
                    "claim": binding.claim,
                    "state": binding.step.value,
                    "volume": binding.volume,
                    "node": binding.node,
                    "pods": ", ".join(users.get(binding.claim, ())) or None,
                    "since": time_text(since),
                    "detail": binding.detail,
                }
            )
    return Answer(items=items)


def half_bound(objects: Mapping[str, Manifest]) -> Iterator[HalfBound]:
    """The half-bound claims, in name order. `objects`: volumes, claims and pods by their streams."""
    reserved: dict[str, tuple[str, Manifest]] = {}
    for stream, volume in objects.items():
        reference = claim_of(volume) if stream.startswith("volume/") else None
        if reference:
            key = f"{reference.get('namespace')}/{reference.get('name')}"
            claim = objects.get(f"claim/{key}")
            if claim is not None and reference.get("uid") in (None, "", uid(claim)):
                reserved[key] = (str(metadata(volume)["name"]), volume)
    for stream, claim in sorted(objects.items()):
        if stream.startswith("claim/") and not claim_is_bound(claim):
            yield from _step_of(stream, claim, reserved.get(stream.removeprefix("claim/")))


def _step_of(stream: str, claim: Manifest, reserved: tuple[str, Manifest] | None) -> Iterator[HalfBound]:
    key, node = stream.removeprefix("claim/"), annotations(claim).get(SELECTED_NODE)
    volume_name = spec(claim).get("volumeName")
    if volume_name:
        yield HalfBound(
            claim=key,
            step=BindStep.HALF_BOUND,
            volume=volume_name,
            node=node,
            detail=f"the claim names {volume_name}" + ("" if reserved else ", which does not name the claim"),
            written=(stream, ("spec", "volumeName")),
        )
    elif reserved is not None:
        volume, manifest = reserved
        keeper = "a controller or scheduler" if BOUND_BY_CONTROLLER in annotations(manifest) else "a person"
        yield HalfBound(
            claim=key,
            step=BindStep.PREBOUND,
            volume=volume,
            node=node,
            detail=f"{keeper} keeps {volume} for it",
            written=(f"volume/{volume}", ("spec", "claimRef")),
        )
    elif node is not None:
        marks = annotations(claim)
        provisioner = marks.get(STORAGE_PROVISIONER) or marks.get(BETA_STORAGE_PROVISIONER)
        yield HalfBound(
            claim=key,
            step=BindStep.PROVISIONING,
            node=node,
            detail=f"waits for {provisioner}" if provisioner else "no provisioner was asked yet",
            written=(stream, ("metadata", "annotations", SELECTED_NODE)),
        )


def claim_users(objects: Mapping[str, Manifest]) -> dict[str, list[str]]:
    """Claim → the pods that use it, ephemeral claims included."""
    users: dict[str, list[str]] = {}
    for stream, pod in objects.items():
        if stream.startswith("pod/"):
            for claim in claims_of_pod(pod):
                users.setdefault(claim, []).append(stream.removeprefix("pod/"))
    return users


def claims_of_pod(pod: Manifest) -> Iterator[str]:
    names = metadata(pod)
    for volume in spec(pod).get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield f"{names.get('namespace')}/{volume['persistentVolumeClaim'].get('claimName')}"
        elif "ephemeral" in volume:
            yield f"{names.get('namespace')}/{names.get('name')}-{volume.get('name')}"


def _since(connection: Connection, stream: str, path: tuple[str, ...]) -> int | None:
    """When the field was last written; None: unknown, because it was set when the object was first observed."""
    written = last_written(connection, stream, *path)
    first = None if written is None else event(connection, written.position)
    return None if written is None or first is None or first.version == 1 else written.at
