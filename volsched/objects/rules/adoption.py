"""Taking objects over from another cluster as they are: uid, age, status and all.

A claimRef with a uid binds a volume to one claim for good. If that claim did not come along, the volume would look
as if its claim had been deleted, and would be reclaimed with its data; so such a volume is refused, unless it says
itself that its claim is gone.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from volsched.kube.kinds import Kind
from volsched.kube.manifest import Manifest, claim_of, metadata, status, uid
from volsched.kube.problems import Defect
from volsched.log.events.catalogue import TITLES
from volsched.log.events.envelope import NewEvent
from volsched.log.events.streams import NOUN_OF_KIND, stream_of
from volsched.pv_controller.rules.phases import GIVEN_UP

CLAIM = "PersistentVolumeClaim"
VOLUME = "PersistentVolume"


def adopted(kind: Kind, key: str, manifest: Manifest, *, uid: str, now: str) -> NewEvent:
    """The creation of the object as it is; `uid` and `now` are for one that does not say who it is and since when.

    Its resourceVersion counts the other cluster's history, and is left there.
    """
    named = {field: value for field, value in metadata(manifest).items() if field != "resourceVersion"}
    patch: dict[str, Any] = {**manifest, "metadata": {"uid": uid, "creationTimestamp": now, **named}}
    return NewEvent(
        stream=stream_of(kind.name, key), type=f"{TITLES[NOUN_OF_KIND[kind.name]]}Created", data={"patch": patch}
    )


def unresolved(kind: Kind, manifest: Manifest, claims: Mapping[str, str]) -> Iterator[Defect]:
    """What a volume says of a claim that is not among these (key → uid)."""
    ref = claim_of(manifest) if kind.name == VOLUME else None
    wanted = None if ref is None else ref.get("uid")
    if not ref or not wanted or status(manifest).get("phase") in GIVEN_UP:
        return
    key = f"{ref.get('namespace')}/{ref.get('name')}"
    if claims.get(key) == wanted:
        return
    found = f"has uid {claims[key]}" if key in claims else "is not in the input"
    message = (
        f"names a claim that did not come along: {CLAIM} {key} {found}, and the volume would be reclaimed; "
        "add the claims of the same moment (kubectl get pv,pvc -A -o yaml), "
        "or leave the uid out to reserve it by name"
    )
    yield Defect(("spec", "claimRef", "uid"), message, str(wanted))


def claim_uids(objects: Iterable[tuple[Kind, str, Manifest]]) -> dict[str, str]:
    return {key: uid(manifest) for kind, key, manifest in objects if kind.name == CLAIM}
