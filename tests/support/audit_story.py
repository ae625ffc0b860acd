"""A short real history for audit questions: a stolen volume, a rollback, a second try, a pod that fits nowhere.

`db` wants two volumes; one is taken by somebody else after the other was written. The transaction is undone and
the pod ends on the other node. Later the pod and one of its claims go, and that claim's data was dirty.
"""

from dataclasses import replace

from tests.support.clusters import LOCAL, Stepped, claim, node, pod
from tests.support.volume_theft import DISKS, take
from volsched.log.database import Database
from volsched.runtime.clock import SECOND

ZONE = "topology.kubernetes.io/zone"
CLUSTER = (
    LOCAL,
    node("node-0", **{ZONE: "zone-a"}),
    node("node-1", **{ZONE: "zone-b"}),
    *DISKS,
)
QUIET = 3_600 * SECOND
"""Between the chapters of the story."""


def tell(database: Database) -> Stepped:
    stepped = Stepped(database, CLUSTER)
    stepped.settle()
    stepped.create(pod("db", "small", "large"))
    stepped.system.executor = replace(stepped.system.executor, batch=1)
    stepped.plan_and_write()
    take(stepped, "n1-large")
    stepped.until(lambda: stepped.node_of("db") is not None)
    stepped.settle()
    stepped.now += QUIET
    stepped.create(claim("huge", "100Gi"), pod("web", "huge"))
    stepped.settle()
    stepped.now += QUIET
    _end(stepped)
    return stepped


def _end(stepped: Stepped) -> None:
    held = dict(stepped.cluster.get("PersistentVolumeClaim", "default/small") or {})
    used = {**held, "status": {**held["status"], "dataState": "Dirty"}}
    stepped.cluster.update("PersistentVolumeClaim", used, status=True)
    stepped.cluster.delete("Pod", "default/db")
    stepped.cluster.delete("PersistentVolumeClaim", "default/small")
    stepped.settle()
