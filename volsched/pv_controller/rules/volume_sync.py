"""Sync of a volume: free, reserved, bound, or released and retained, deleted or scrubbed."""

from contextlib import suppress

from volsched.kube.meta import MIGRATED_TO, PROVISIONED_BY, PV_CONTROLLER_FINALIZER, ObjectReference
from volsched.kube.storage import AVAILABLE, Claim, Volume
from volsched.log.commands import RejectedError
from volsched.objects.rules.object_events import NotFoundError
from volsched.pv_controller.rules.bind_writes import (
    fail_volume,
    move_volume,
    notify_claim,
    notify_volume,
    save_volume,
    unbind,
    with_finalizers,
)
from volsched.pv_controller.rules.protection import DELETE, RECYCLE, RETAIN, keep_volume_up
from volsched.pv_controller.rules.reasons import (
    BOUND,
    GIVEN_UP,
    NO_RECYCLER,
    NORMAL,
    RECYCLED,
    RELEASED,
    UNKNOWN_POLICY,
    VOLUME_DELETE,
    VOLUME_FAILED_DELETE,
    VOLUME_FAILED_RECYCLE,
    VOLUME_MISMATCH,
    VOLUME_RECYCLED,
    VOLUME_UNKNOWN_RECLAIM_POLICY,
    WARNING,
    claim_of_other_mode,
    no_plugin_named,
    used_by_pods,
    volume_of_other_mode,
)
from volsched.pv_controller.rules.requests import (
    CLAIM,
    VOLUME,
    ControllerRules,
    Delete,
    DeleteAsset,
    Enqueue,
    LiveGet,
    PluginError,
    Recycle,
    StartOperation,
    Steps,
    VolumeInUseError,
    VolumePlugin,
)
from volsched.pv_controller.rules.view import (
    ParsedObject,
    View,
    active_pods,
    parsed_claim,
    parsed_volume,
    placed_pods,
)

# Reclaiming a volume whose claim is deleted: it is retained, deleted, or scrubbed for the next claim.
#
# Deleting and scrubbing take long and are irreversible. They run after the sync, at most one per name, and each
# reads the store once more before it touches anything.


def reclaim(view: View, volume: ParsedObject[Volume], *, rules: ControllerRules) -> Steps[None]:
    policy = volume.value.reclaim_policy
    name = f"{volume.value.name}[{volume.meta.uid}]"
    if volume.meta.annotations.get(MIGRATED_TO):
        # The CSI driver that replaced the plugin deletes volumes that it finds Released.
        pass
    elif policy == RETAIN:
        # The administrator decides about the data; the claimRef names its owner.
        pass
    elif policy == DELETE:
        yield StartOperation(f"delete-{name}", delete_volume(view, volume, rules=rules))
    elif policy == RECYCLE:
        yield StartOperation(f"recycle-{name}", recycle_volume(view, volume, rules=rules))
    else:
        yield from fail_volume(volume, VOLUME_UNKNOWN_RECLAIM_POLICY, UNKNOWN_POLICY)


def delete_volume(view: View, volume: ParsedObject[Volume], *, rules: ControllerRules) -> Steps[None]:
    """Destroy the storage, then the object. An error is raised, so that the next attempt waits."""
    live = yield from _still_released(view, volume, rules=rules)
    if live is None:
        # Deleted, reused, or with another policy since the sync.
        pass
    else:
        try:
            deleted = yield from _delete_storage(view, live, rules=rules)
        except VolumeInUseError as error:
            yield from notify_volume(live, NORMAL, VOLUME_DELETE, str(error))
            raise
        except (PluginError, RejectedError) as error:
            yield from fail_volume(live, VOLUME_FAILED_DELETE, str(error))
            raise
        if deleted:
            yield from _delete_object(live)
        else:
            # An external provisioner deletes its volumes itself when it finds them Released.
            pass


def recycle_volume(view: View, volume: ParsedObject[Volume], *, rules: ControllerRules) -> Steps[None]:
    live = yield from _still_released(view, volume, rules=rules)
    ref = live.value.claim_ref if live is not None else None
    if live is None or ref is None:
        # Deleted, reused, or with another policy since the sync.
        pass
    else:
        key = f"{ref.namespace}/{ref.name}"
        pods = active_pods(view.pods_using(key))
        plugin = _serving(live.value, rules, recycles=True)
        if pods and view.claim(key) is None:
            yield from notify_volume(live, NORMAL, VOLUME_FAILED_RECYCLE, used_by_pods(pods))
        elif plugin is None:
            # An existing claim of that name is a new one with another volume; its pods do not use this one.
            yield from fail_volume(live, VOLUME_FAILED_RECYCLE, NO_RECYCLER)
        else:
            yield from _scrub(live, plugin)


def is_released(view: View, volume: Volume, *, rules: ControllerRules) -> Steps[bool]:
    """Whether no claim can need the data: the claim is deleted, is another one, or has another volume."""
    ref = volume.claim_ref
    if ref is None or ref.uid == "":
        # Free, or reserved for any claim of that name.
        return False
    key = f"{ref.namespace}/{ref.name}"
    claim = view.claim(key)
    if rules.safe_release:
        manifest = yield LiveGet(CLAIM, key)
        claim = None if manifest is None else parsed_claim(manifest)
    else:
        # The reference reads its cache, which may not know the claim yet.
        pass
    if claim is None or claim.meta.uid != ref.uid:
        return True
    return claim.value.volume_name not in ("", volume.name)


def _live_volume(name: str) -> Steps[ParsedObject[Volume] | None]:
    manifest = yield LiveGet(VOLUME, name)
    return None if manifest is None else parsed_volume(manifest)


def _still_released(
    view: View, volume: ParsedObject[Volume], *, rules: ControllerRules
) -> Steps[ParsedObject[Volume] | None]:
    live = yield from _live_volume(volume.value.name)
    same = (
        live is not None
        and live.meta.uid == volume.meta.uid
        and live.value.reclaim_policy == volume.value.reclaim_policy
    )
    if live is None or not same:
        return None
    return live if (yield from is_released(view, live.value, rules=rules)) else None


def _delete_storage(view: View, volume: ParsedObject[Volume], *, rules: ControllerRules) -> Steps[bool]:
    """Delete the storage; False: it is not ours to delete."""
    plugin = _deleter(volume.value, rules)
    if plugin is None:
        return False
    users = _left_behind(view, volume.value) if rules.safe_release else []
    if users:
        raise VolumeInUseError(used_by_pods(users))
    yield DeleteAsset(plugin.name, volume.manifest)
    # Read again: deletion may have taken long, and a refused write here would delete the storage again.
    live = yield from _live_volume(volume.value.name)
    if live is not None and PV_CONTROLLER_FINALIZER in live.meta.finalizers:
        left = [name for name in live.meta.finalizers if name != PV_CONTROLLER_FINALIZER]
        yield from save_volume(with_finalizers(live.manifest, left))
    else:
        # Our finalizer was never set, as on an administrator's volume.
        pass
    return True


def _left_behind(view: View, volume: Volume) -> list[str]:
    """Pods that use the volume although their claim is deleted: a user removed its protection by hand.

    If a claim of that name exists, it is another one, and the pods are its pods.
    """
    ref = volume.claim_ref
    key = "" if ref is None else f"{ref.namespace}/{ref.name}"
    return placed_pods(view.pods_using(key)) if view.claim(key) is None else []


def _delete_object(volume: ParsedObject[Volume]) -> Steps[None]:
    # Not found: it was being deleted, and our finalizer was the last one.
    with suppress(NotFoundError):
        yield Delete(VOLUME, volume.value.name, volume.meta.uid)


def _scrub(volume: ParsedObject[Volume], plugin: VolumePlugin) -> Steps[None]:
    try:
        yield Recycle(plugin.name, volume.manifest)
    except PluginError as error:
        yield from fail_volume(volume, VOLUME_FAILED_RECYCLE, f"Recycle failed: {error}")
    else:
        yield from notify_volume(volume, NORMAL, VOLUME_RECYCLED, RECYCLED)
        yield from unbind(volume)


def _deleter(volume: Volume, rules: ControllerRules) -> VolumePlugin | None:
    """The plugin that deletes the storage; None: an external component does. Raises if nothing does."""
    provisioner = volume.meta.annotations.get(PROVISIONED_BY, "")
    plugin = rules.plugins.get(provisioner)
    if plugin is not None and plugin.deletes:
        return plugin
    if provisioner in rules.migrated or (provisioner and not rules.is_in_tree(provisioner)):
        return None
    if provisioner:
        raise PluginError(no_plugin_named(provisioner))
    if volume.source is not None and volume.source.kind == "csi":
        # A CSI volume of unknown origin: its driver's provisioner knows whether it created it.
        return None
    serving = _serving(volume, rules, deletes=True)
    if serving is None:
        raise PluginError(
            f'error getting deleter volume plugin for volume "{volume.name}": no volume plugin matched'
        )
    return serving


def _serving(
    volume: Volume, rules: ControllerRules, *, deletes: bool = False, recycles: bool = False
) -> VolumePlugin | None:
    """A plugin for the volume's source with the required abilities."""
    for plugin in rules.plugins.values():
        able = (plugin.deletes or not deletes) and (plugin.recycles or not recycles)
        if able and plugin.serves(volume):
            return plugin
    return None


# A volume never binds itself to a claim; a half-done binding is completed by the claim's sync. A volume is
# never released because a cache does not know the claim.


def sync_volume(view: View, volume: ParsedObject[Volume], *, rules: ControllerRules) -> Steps[None]:
    volume = yield from keep_volume_up(volume, rules=rules)
    ref = volume.value.claim_ref
    if ref is None:
        yield from move_volume(volume, AVAILABLE)
    elif ref.uid == "":
        # Reserved by a user, for a claim that may not exist yet; the claim's sync fills in the uid.
        yield from move_volume(volume, AVAILABLE)
    else:
        claim = yield from _claim_of(view, volume.value, ref, rules=rules)
        if claim is None:
            yield from _release(view, volume, rules=rules)
        else:
            yield from _sync_with(view, volume, claim, rules=rules)


def _sync_with(
    view: View, volume: ParsedObject[Volume], claim: ParsedObject[Claim], *, rules: ControllerRules
) -> Steps[None]:
    """Sync a volume whose claim exists: the phase depends on whether the claim points back."""
    if claim.value.volume_name == "" and claim.value.mode != volume.value.mode:
        # The claim's search will never take this volume, so both get a notice instead of endless syncs.
        yield from notify_volume(volume, WARNING, VOLUME_MISMATCH, claim_of_other_mode(claim.value.name))
        yield from notify_claim(claim, WARNING, VOLUME_MISMATCH, volume_of_other_mode(volume.value.name))
    elif claim.value.volume_name == "":
        # The claim's sync completes the binding, or undoes it in a rollback. The phase stays.
        yield Enqueue(CLAIM, claim.meta.key)
    elif claim.value.volume_name == volume.value.name:
        yield from move_volume(volume, BOUND)
    elif PROVISIONED_BY in volume.meta.annotations and volume.value.reclaim_policy == DELETE:
        # Created for a claim that meanwhile got another volume: never used.
        yield from _release(view, volume, rules=rules)
    else:
        yield from unbind(volume)


def _release(view: View, volume: ParsedObject[Volume], *, rules: ControllerRules) -> Steps[None]:
    if volume.value.phase in GIVEN_UP:
        # Released already; or Failed, which stays visible while reclaiming is retried.
        released = volume
    else:
        released = yield from move_volume(volume, RELEASED)
    yield from reclaim(view, released, rules=rules)


def _claim_of(
    view: View, volume: Volume, ref: ObjectReference, *, rules: ControllerRules
) -> Steps[ParsedObject[Claim] | None]:
    """The volume's claim, None if it is deleted; another claim of the same name does not count."""
    key = f"{ref.namespace}/{ref.name}"
    claim = view.claim(key)
    if claim is None and (volume.phase not in GIVEN_UP or rules.safe_release):
        # A scheduler or a provisioner may know the claim before our cache does.
        claim = yield from _live_claim(key)
    else:
        # The reference trusts its cache for volumes that it has released before.
        pass
    if claim is not None and claim.meta.uid != ref.uid:
        # Recreated under its name; or the cache still has the old claim, and the volume is for the new one.
        claim = yield from _live_claim(key)
    else:
        pass
    return claim if claim is not None and claim.meta.uid == ref.uid else None


def _live_claim(key: str) -> Steps[ParsedObject[Claim] | None]:
    manifest = yield LiveGet(CLAIM, key)
    return None if manifest is None else parsed_claim(manifest)
