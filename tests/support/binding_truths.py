"""What must hold of bindings in the objects as they really are, whatever happened: invariants 1, 2, 4 and 8."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from volsched.binding.rules.phases import LegPhase
from volsched.cluster.port import whole
from volsched.kube.manifest import claim_is_bound, volume_reaches
from volsched.kube.meta import BINDING_STAMP, ROLLBACK, SELECTED_NODE
from volsched.log import tables

if TYPE_CHECKING:
    from tests.support.binding_world import World


def violations(world: "World") -> Iterator[str]:
    """Which of invariants 1, 2 and 4 do not hold, of the objects as they really are."""
    legs = world.rows(tables.binding_legs)
    bindings = {row["id"]: row for row in world.rows(tables.bindings)}
    owned = [leg for leg in legs if leg["open"] and leg["owner"]]
    for name in ("volume", "claim"):
        held = [leg[name] for leg in owned if leg[name] is not None]
        yield from (
            f"1: {name} {it} is in two open legs" for it in sorted({it for it in held if held.count(it) > 1})
        )
    volumes = {str(it["metadata"]["name"]): it for it in whole(world.others.list("PersistentVolume")).objects}
    claims = {_key(it): it for it in whole(world.others.list("PersistentVolumeClaim")).objects}
    yield from _wrong_links(volumes, claims)
    for name, volume in volumes.items():
        stamp = notes(volume).get(BINDING_STAMP)
        if stamp is not None and (volume["spec"].get("claimRef") or {}).get("uid"):
            mine = [leg for leg in legs if leg["binding"] == stamp and leg["volume"] == name]
            if not any(_accounts_for(bindings[stamp], leg) for leg in mine):
                yield f"2: volume {name} is claimed for {stamp}, which knows nothing of it"
    for key, claim in claims.items():
        stamp = notes(claim).get(BINDING_STAMP)
        if stamp is not None and SELECTED_NODE in notes(claim):
            mine = [leg for leg in legs if leg["binding"] == stamp and leg["claim"] == key]
            if not any(_accounts_for(bindings[stamp], leg) for leg in mine):
                yield f"2: claim {key} has a node for {stamp}, which knows nothing of it"
        if ROLLBACK in notes(claim) and not any(row["open"] for row in bindings.values()):
            yield f"2: claim {key} is left marked for a rollback"
    for name in sorted(world.stolen & volumes.keys()):
        if (volumes[name]["spec"].get("claimRef") or {}).get("name") != "thief":
            yield f"2: volume {name} was taken from the claim that somebody else gave it to"
    for uid, (key, name) in world.dirty.items():
        if name in volumes and (volumes[name]["spec"].get("claimRef") or {}).get("uid") != uid:
            yield f"4: volume {name}, which holds data of claim {key}, was unbound"
        if (
            key in claims
            and claims[key]["metadata"]["uid"] == uid
            and claims[key]["spec"].get("volumeName") != name
        ):
            yield f"4: claim {key}, which has data on volume {name}, was unbound"


def wrong_commit(world: "World", binding: str) -> Iterator[str]:
    """8: committed implies every leg bound, in reach of the node, and the pod there."""
    state = world.binding(binding)
    pod, node = world.must_show(f"pod/{state.plan['pod']}"), world.must_show(f"node/{state.plan['node']}")
    if pod["spec"].get("nodeName") != state.plan["node"]:
        yield f"8: {binding} is committed and its pod is not on the node"
    for leg in state.legs:
        claim, volume = world.shown(f"claim/{leg.claim}"), world.shown(f"volume/{leg.volume}")
        if claim is None or not claim_is_bound(claim) or claim["spec"]["volumeName"] != leg.volume:
            yield f"8: {binding} is committed and claim {leg.claim} is not bound to {leg.volume}"
        if volume is None or not volume_reaches(volume, node):
            yield f"8: {binding} is committed and volume {leg.volume} is out of reach"


def _wrong_links(volumes: Mapping[str, Any], claims: Mapping[str, Any]) -> Iterator[str]:
    bound = {key: str(it["spec"]["volumeName"]) for key, it in claims.items() if claim_is_bound(it)}
    names = list(bound.values())
    yield from (
        f"1: volume {it} is bound to two claims" for it in sorted({it for it in names if names.count(it) > 1})
    )
    for key, name in bound.items():
        reference = volumes[name]["spec"].get("claimRef") or {} if name in volumes else None
        if reference is not None and reference.get("uid") != claims[key]["metadata"]["uid"]:
            yield f"1: claim {key} is bound to volume {name} and not back"


def _accounts_for(binding: Mapping[str, Any], leg: Mapping[str, Any]) -> bool:
    if leg["state"] == LegPhase.RETAINED or binding["state"] == "committed":
        return True
    return bool(binding["open"]) and leg["state"] not in (LegPhase.VOIDED, LegPhase.RELEASED)


def is_free(world: "World", volume: str) -> bool:
    """No claim, no stamp, and no assumption that counts."""
    state, found = world.state(f"volume/{volume}"), world.must_show(f"volume/{volume}")
    assumed = state.assumed is not None and state.assumed.rv == state.rv
    return not found["spec"].get("claimRef") and not notes(found) and not assumed


def notes(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    """The annotations."""
    found: Mapping[str, str] = manifest["metadata"].get("annotations") or {}
    return found


def _key(manifest: Mapping[str, Any]) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"
