"""Provisioning a volume for a claim: through an external provisioner, or with a plugin of our own."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from volsched.kube.manifest import YES
from volsched.kube.meta import (
    BETA_STORAGE_PROVISIONER,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    PV_CONTROLLER_FINALIZER,
    SELECTED_NODE,
    SELECTED_NODE_KEYS,
    STORAGE_PROVISIONER,
)
from volsched.kube.storage import Claim, StorageClass, Volume
from volsched.log.commands import RejectedError
from volsched.objects.rules.object_events import AlreadyExistsError
from volsched.pv_controller.rules.bind_writes import claim_reference, notify_claim, save_claim, with_annotations
from volsched.pv_controller.rules.protection import DELETE, with_migration
from volsched.pv_controller.rules.reasons import (
    BOUND,
    EXTERNAL_PROVISIONING,
    NORMAL,
    PROVISIONING_CLEANED_UP,
    PROVISIONING_CLEANUP_FAILED,
    PROVISIONING_FAILED,
    PROVISIONING_SUCCEEDED,
    WARNING,
    claim_not_saved,
    cleaned_up,
    cleanup_failed,
    no_data_source,
    no_mount_options,
    no_plugin_named,
    node_not_found,
    provisioned,
    provisioning_failed,
    volume_not_saved,
    volume_too_small,
    volume_without_attributes,
    waiting_for_provisioner,
)
from volsched.pv_controller.rules.requests import (
    VOLUME,
    ControllerRules,
    Create,
    DeleteAsset,
    LiveGet,
    Manifest,
    Pause,
    PluginError,
    Provision,
    StartOperation,
    Steps,
    SyncError,
    UnfinishedError,
    VolumePlugin,
)
from volsched.pv_controller.rules.view import ParsedObject, View, parsed_volume
from volsched.scheduling.rules.pod_claims import selected_node
from volsched.scheduling.rules.reasons import class_not_found

SAVE_TRIES = 5
SAVE_PAUSE_SECONDS = 10


def provisioned_name(claim: Claim) -> str:
    """The name of the claim's own volume, so that it is never created twice."""
    return f"pvc-{claim.meta.uid}"


def provision(view: View, claim: ParsedObject[Claim], *, rules: ControllerRules) -> Steps[None]:
    storage_class = view.storage_class(claim.value.class_name)
    if not rules.provisioning:
        # The administrator creates all volumes by hand.
        pass
    elif storage_class is None:
        # Not an error of the sync: the class may be created later, and every resync checks again.
        yield from _fail(claim, class_not_found(claim.value.class_name))
    else:
        yield from _start(claim, storage_class, rules=rules)


def _start(
    claim: ParsedObject[Claim], storage_class: ParsedObject[StorageClass], *, rules: ControllerRules
) -> Steps[None]:
    provisioner = storage_class.value.provisioner
    plugin = rules.plugins.get(provisioner)
    name = f"provision-{claim.meta.key}[{claim.meta.uid}]"
    if provisioner in rules.migrated:
        yield StartOperation(name, _ask_outside(claim, rules.migrated[provisioner], rules=rules))
    elif plugin is not None and plugin.provisions:
        yield StartOperation(name, _make(claim, storage_class, plugin, rules=rules))
    elif rules.is_in_tree(provisioner):
        yield from _fail(claim, no_plugin_named(provisioner))
    else:
        yield StartOperation(name, _ask_outside(claim, provisioner, rules=rules))


def _ask_outside(claim: ParsedObject[Claim], provisioner: str, *, rules: ControllerRules) -> Steps[None]:
    """Request the volume with an annotation; the volume appears later, with a claimRef."""
    try:
        ordered = yield from _order(claim, provisioner, rules=rules)
    except RejectedError as error:
        yield from _fail(claim, claim_not_saved(str(error)))
        raise
    yield from notify_claim(ordered, NORMAL, EXTERNAL_PROVISIONING, waiting_for_provisioner(provisioner))


def _order(claim: ParsedObject[Claim], provisioner: str, *, rules: ControllerRules) -> Steps[ParsedObject[Claim]]:
    if claim.meta.annotations.get(STORAGE_PROVISIONER) == provisioner:
        # Requested before. The beta key is not checked: it is not read if there is a stable one.
        ordered = claim
    else:
        marks = {STORAGE_PROVISIONER: provisioner, BETA_STORAGE_PROVISIONER: provisioner}
        marked = with_annotations(claim.manifest, add=marks)
        ordered = yield from save_claim(with_migration(marked, provisioner, rules=rules))
    return ordered


def _make(
    claim: ParsedObject[Claim],
    storage_class: ParsedObject[StorageClass],
    plugin: VolumePlugin,
    *,
    rules: ControllerRules,
) -> Steps[None]:
    if "dataSource" in claim.manifest["spec"]:
        raise (yield from _failure(claim, no_data_source(plugin.name)))
    claim = yield from _order(claim, storage_class.value.provisioner, rules=rules)
    name = provisioned_name(claim.value)
    options: Sequence[str] = storage_class.manifest.get("mountOptions", ())
    if (yield LiveGet(VOLUME, name)) is not None:
        # An earlier operation created it, or the name is taken. Either way there is nothing to create.
        pass
    elif options and not plugin.mount_options:
        # Refused before storage is created that could never be mounted with the class's options.
        raise (yield from _failure(claim, no_mount_options(storage_class.value.name, options)))
    else:
        node = yield from _node_of(claim, rules)
        request = Provision(plugin.name, name, claim.manifest, storage_class.manifest, node)
        answer = yield from _call(request, claim, storage_class, rules)
        volume = _finished(answer, name, claim.value, storage_class.value, plugin)
        why = _unfit(parsed_volume(volume).value, claim.value, rules)
        if why is not None:
            # It could never be bound, and its name would prevent a correct one.
            failure = yield from _failure(claim, provisioning_failed(storage_class.value.name, why))
            yield from _clean_up(volume, claim, plugin)
            raise failure
        yield from _save(volume, claim, plugin)


def _node_of(claim: ParsedObject[Claim], rules: ControllerRules) -> Steps[Manifest | None]:
    node: Manifest | None = None
    selected = selected_node(claim.value, alpha=rules.alpha_annotations)
    if selected is not None:
        node = yield LiveGet("Node", selected)
        if node is None:
            # The selected node stays: only the provisioner's own refusal sends the pod back to the scheduler.
            raise (yield from _failure(claim, node_not_found(f'node "{selected}" not found')))
    else:
        # No pod has a node: the class alone decides where.
        pass
    return node


def _call(
    request: Provision,
    claim: ParsedObject[Claim],
    storage_class: ParsedObject[StorageClass],
    rules: ControllerRules,
) -> Steps[Manifest]:
    try:
        answer: Manifest = yield request
    except PluginError as error:
        # Notice first: the pod's binding fails as soon as the node is removed, and stores the last notice.
        yield from _fail(claim, provisioning_failed(storage_class.value.name, str(error)))
        if isinstance(error, UnfinishedError):
            # The storage may still appear on the selected node, so the pod must not go elsewhere.
            pass
        else:
            yield from _reschedule(claim, rules)
        raise
    return answer


def _reschedule(claim: ParsedObject[Claim], rules: ControllerRules) -> Steps[None]:
    """Remove the selected node. If that write is refused, the next attempt fails as well and repeats it."""
    keys = SELECTED_NODE_KEYS if rules.alpha_annotations else (SELECTED_NODE,)
    if any(key in claim.meta.annotations for key in keys):
        with suppress(RejectedError):
            yield from save_claim(with_annotations(claim.manifest, drop=keys))
    else:
        # No pod has a node, so none must be rescheduled.
        pass


def _finished(
    answer: Manifest, name: str, claim: Claim, storage_class: StorageClass, plugin: VolumePlugin
) -> dict[str, Any]:
    """The plugin's result as a volume of the claim; missing fields are taken from the request."""
    spec = {
        "capacity": {"storage": str(claim.size)},
        "persistentVolumeReclaimPolicy": storage_class.reclaim_policy or DELETE,
        **answer["spec"],
        "claimRef": claim_reference(claim),
        "storageClassName": claim.class_name,
    }
    if claim.attributes_class and "csi" in spec:
        # Only CSI volumes can have a volumeAttributesClassName; others get none and are refused as a misfit.
        spec.setdefault("volumeAttributesClassName", claim.attributes_class)
    metadata = {**(answer.get("metadata") or {}), "name": name}
    if spec["persistentVolumeReclaimPolicy"] == DELETE:
        # The object must not be removed before its storage is deleted.
        metadata["finalizers"] = [PV_CONTROLLER_FINALIZER]
    else:
        pass
    volume = {"apiVersion": "v1", "kind": VOLUME, "metadata": metadata, "spec": spec, "status": {"phase": BOUND}}
    return with_annotations(volume, add={BOUND_BY_CONTROLLER: YES, PROVISIONED_BY: plugin.name})


def _unfit(volume: Volume, claim: Claim, rules: ControllerRules) -> str | None:
    """The reason why the volume could never be bound to the claim that it was created for, or None."""
    if volume.size < claim.size:
        return volume_too_small(str(volume.size), str(claim.size))
    differs = (volume.attributes_class or "") != (claim.attributes_class or "")
    if differs and rules.refuses_other_attributes:
        return volume_without_attributes(claim.attributes_class or "", volume.attributes_class or "")
    return None


def _save(volume: Manifest, claim: ParsedObject[Claim], plugin: VolumePlugin) -> Steps[None]:
    for left in reversed(range(SAVE_TRIES)):
        try:
            yield Create(VOLUME, volume)
        except AlreadyExistsError:
            # An earlier attempt was stored although it reported an error.
            break
        except RejectedError as error:
            if left:
                yield Pause(SAVE_PAUSE_SECONDS)
            else:
                yield from _fail(claim, volume_not_saved(claim.meta.key, str(error)))
                yield from _clean_up(volume, claim, plugin)
                raise
        else:
            break
    name = volume["metadata"]["name"]
    yield from notify_claim(claim, NORMAL, PROVISIONING_SUCCEEDED, provisioned(name, plugin.name))


def _clean_up(volume: Manifest, claim: ParsedObject[Claim], plugin: VolumePlugin) -> Steps[None]:
    """Delete the new storage: without an object it would never be deleted.

    The reference also looks for the object that it just failed to create, and so always reports a failure.
    """
    name = volume["metadata"]["name"]
    for left in reversed(range(SAVE_TRIES)):
        try:
            yield DeleteAsset(plugin.name, volume)
        except PluginError as error:
            if left:
                yield Pause(SAVE_PAUSE_SECONDS)
            else:
                message = cleanup_failed(claim.meta.key, str(error))
                yield from notify_claim(claim, WARNING, PROVISIONING_CLEANUP_FAILED, message)
        else:
            yield from notify_claim(claim, NORMAL, PROVISIONING_CLEANED_UP, cleaned_up(claim.meta.key, name))
            break


def _fail(claim: ParsedObject[Claim], message: str) -> Steps[None]:
    yield from notify_claim(claim, WARNING, PROVISIONING_FAILED, message)


def _failure(claim: ParsedObject[Claim], message: str) -> Steps[SyncError]:
    """Write a notice on the claim; the caller raises the result, so that the next attempt backs off."""
    yield from _fail(claim, message)
    return SyncError(message)
