"""What becomes of a volume whose claim is gone: kept, deleted, or scrubbed for the next one.

Deleting and scrubbing take long and cannot be undone. They run after the sync, under a name of which only one runs
at a time, and each looks at the store once more before it touches anything.
"""

from contextlib import suppress

from volsched.kube.meta import MIGRATED_TO, PROVISIONED_BY, PV_CONTROLLER_FINALIZER
from volsched.kube.storage import Volume
from volsched.log.commands import RejectedError
from volsched.objects.rules.refusals import NotFoundError
from volsched.pv_controller.rules.bind_writes import unbind
from volsched.pv_controller.rules.claim_users import active_pods, placed_pods
from volsched.pv_controller.rules.manifest_edits import with_finalizers
from volsched.pv_controller.rules.modes import ControllerRules, VolumePlugin
from volsched.pv_controller.rules.normalization import DELETE, RECYCLE, RETAIN
from volsched.pv_controller.rules.reasons import (
    NO_RECYCLER,
    NORMAL,
    RECYCLED,
    UNKNOWN_POLICY,
    VOLUME_DELETE,
    VOLUME_FAILED_DELETE,
    VOLUME_FAILED_RECYCLE,
    VOLUME_RECYCLED,
    VOLUME_UNKNOWN_RECLAIM_POLICY,
    no_plugin_named,
    used_by_pods,
)
from volsched.pv_controller.rules.requests import (
    CLAIM,
    VOLUME,
    Delete,
    DeleteAsset,
    LiveGet,
    PluginError,
    Recycle,
    StartOperation,
    Steps,
    VolumeInUseError,
)
from volsched.pv_controller.rules.view import Held, View, held_claim, held_volume
from volsched.pv_controller.rules.writes import fail_volume, save_volume, tell_volume


def reclaim(view: View, volume: Held[Volume], *, rules: ControllerRules) -> Steps[None]:
    policy = volume.value.reclaim_policy
    name = f"{volume.value.name}[{volume.meta.uid}]"
    if volume.meta.annotations.get(MIGRATED_TO):
        # The driver that took over deletes what it finds Released.
        pass
    elif policy == RETAIN:
        # The data is the administrator's to look at; the claimRef says whose it was.
        pass
    elif policy == DELETE:
        yield StartOperation(f"delete-{name}", delete_volume(view, volume, rules=rules))
    elif policy == RECYCLE:
        yield StartOperation(f"recycle-{name}", recycle_volume(view, volume, rules=rules))
    else:
        yield from fail_volume(volume, VOLUME_UNKNOWN_RECLAIM_POLICY, UNKNOWN_POLICY)


def delete_volume(view: View, volume: Held[Volume], *, rules: ControllerRules) -> Steps[None]:
    """Destroy the storage, then the object. An error is raised, so that the next try waits."""
    live = yield from _still_released(view, volume, rules=rules)
    if live is None:
        # Gone, taken back, or no longer to be deleted: all of that may have happened since the sync.
        pass
    else:
        try:
            deleted = yield from _delete_storage(view, live, rules=rules)
        except VolumeInUseError as error:
            yield from tell_volume(live, NORMAL, VOLUME_DELETE, str(error))
            raise
        except (PluginError, RejectedError) as error:
            yield from fail_volume(live, VOLUME_FAILED_DELETE, str(error))
            raise
        if deleted:
            yield from _delete_object(live)
        else:
            # An external provisioner deletes its volumes itself when it finds them Released.
            pass


def recycle_volume(view: View, volume: Held[Volume], *, rules: ControllerRules) -> Steps[None]:
    live = yield from _still_released(view, volume, rules=rules)
    ref = live.value.claim_ref if live is not None else None
    if live is None or ref is None:
        # Gone, taken back, or no longer to be scrubbed.
        pass
    else:
        key = f"{ref.namespace}/{ref.name}"
        pods = active_pods(view.pods_using(key))
        plugin = _serving(live.value, rules, recycles=True)
        if pods and view.claim(key) is None:
            yield from tell_volume(live, NORMAL, VOLUME_FAILED_RECYCLE, used_by_pods(pods))
        elif plugin is None:
            # A claim of that name that exists is a new one with another volume; its pods do not use this one.
            yield from fail_volume(live, VOLUME_FAILED_RECYCLE, NO_RECYCLER)
        else:
            yield from _scrub(live, plugin)


def is_released(view: View, volume: Volume, *, rules: ControllerRules) -> Steps[bool]:
    """Nobody can come back for the data: the claim is gone, is another one, or has another volume."""
    ref = volume.claim_ref
    if ref is None or ref.uid == "":
        # Free, or reserved for whoever comes by that name.
        return False
    key = f"{ref.namespace}/{ref.name}"
    claim = view.claim(key)
    if rules.safe_release:
        manifest = yield LiveGet(CLAIM, key)
        claim = None if manifest is None else held_claim(manifest)
    else:
        # The reference asks its cache, which may not know the claim yet.
        pass
    if claim is None or claim.meta.uid != ref.uid:
        return True
    return claim.value.volume_name not in ("", volume.name)


def _still_released(view: View, volume: Held[Volume], *, rules: ControllerRules) -> Steps[Held[Volume] | None]:
    manifest = yield LiveGet(VOLUME, volume.value.name)
    live = None if manifest is None else held_volume(manifest)
    same = (
        live is not None
        and live.meta.uid == volume.meta.uid
        and live.value.reclaim_policy == volume.value.reclaim_policy
    )
    if live is None or not same:
        return None
    return live if (yield from is_released(view, live.value, rules=rules)) else None


def _delete_storage(view: View, volume: Held[Volume], *, rules: ControllerRules) -> Steps[bool]:
    """False: it is not ours to delete."""
    plugin = _deleter(volume.value, rules)
    if plugin is None:
        return False
    users = _left_behind(view, volume.value) if rules.safe_release else []
    if users:
        raise VolumeInUseError(used_by_pods(users))
    yield DeleteAsset(plugin.name, volume.manifest)
    # Read once more: deleting may have taken long, and a refused write here would delete the storage again.
    manifest = yield LiveGet(VOLUME, volume.value.name)
    live = None if manifest is None else held_volume(manifest)
    if live is not None and PV_CONTROLLER_FINALIZER in live.meta.finalizers:
        left = [name for name in live.meta.finalizers if name != PV_CONTROLLER_FINALIZER]
        yield from save_volume(with_finalizers(live.manifest, left))
    else:
        # Never guarded, as an administrator's volume is not.
        pass
    return True


def _left_behind(view: View, volume: Volume) -> list[str]:
    """Pods that run on the volume although their claim is gone: somebody took its protection off by hand.

    Where there is a claim of that name it is another one, and they are its pods.
    """
    ref = volume.claim_ref
    key = "" if ref is None else f"{ref.namespace}/{ref.name}"
    return placed_pods(view.pods_using(key)) if view.claim(key) is None else []


def _delete_object(volume: Held[Volume]) -> Steps[None]:
    # Not found: it was being deleted, and went with its last finalizer, which was ours.
    with suppress(NotFoundError):
        yield Delete(VOLUME, volume.value.name, volume.meta.uid)


def _scrub(volume: Held[Volume], plugin: VolumePlugin) -> Steps[None]:
    try:
        yield Recycle(plugin.name, volume.manifest)
    except PluginError as error:
        yield from fail_volume(volume, VOLUME_FAILED_RECYCLE, f"Recycle failed: {error}")
    else:
        yield from tell_volume(volume, NORMAL, VOLUME_RECYCLED, RECYCLED)
        yield from unbind(volume)


def _deleter(volume: Volume, rules: ControllerRules) -> VolumePlugin | None:
    """Who deletes the storage; None: somebody outside. That nobody can is an error."""
    provisioner = volume.meta.annotations.get(PROVISIONED_BY, "")
    plugin = rules.plugins.get(provisioner)
    if plugin is not None and plugin.deletes:
        return plugin
    if provisioner in rules.migrated or (provisioner and not rules.is_in_tree(provisioner)):
        return None
    if provisioner:
        raise PluginError(no_plugin_named(provisioner))
    if volume.source is not None and volume.source.kind == "csi":
        # A CSI volume of unknown origin: its driver's provisioner knows whether it is its own.
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
    """A plugin for the volume's source that can do all that is asked."""
    for plugin in rules.plugins.values():
        able = (plugin.deletes or not deletes) and (plugin.recycles or not recycles)
        if able and plugin.serves(volume):
            return plugin
    return None
