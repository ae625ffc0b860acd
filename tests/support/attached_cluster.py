"""volsched in own mode on a strict API server, over HTTP; the test plays the cluster's controllers and clock."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from tests.cluster.conftest import over_http
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.patience import wait_until
from tests.support.serving import Served
from volsched.api.strict.server import CALLS_PATH
from volsched.cluster.installation_lock import InstallationLock
from volsched.cluster.kubernetes.adapter import KubernetesCluster
from volsched.cluster.observer import ClusterObserver
from volsched.cluster.permissions import GATE_MODE, LOCKS, MODES, OWN, WATCHED_KINDS, resource_of
from volsched.cluster.port import KUBERNETES, Cluster
from volsched.cluster.projection import project
from volsched.kube.meta import GATE
from volsched.lab.manifests import storage_class
from volsched.lab.storage_players import ProvisionerPlayer, PvController, claim_path, volume_path
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.reads.lookups import keys_of
from volsched.runtime.clock import SECOND, system_clock
from volsched.runtime.system import ProcessRole, System, embedded

Manifest = dict[str, Any]
NETWORK = storage_class("network", "disk.example.com")


def gated(name: str, *claims: str, others: tuple[str, ...] = ()) -> Manifest:
    made = pod(name, *claims)
    gates = [{"name": it} for it in (*others, GATE)]
    return {**made, "spec": {**made["spec"], "schedulerName": "default-scheduler", "schedulingGates": gates}}


def ours(name: str, *claims: str) -> Manifest:
    made = pod(name, *claims)
    return {**made, "spec": {**made["spec"], "schedulerName": "volsched"}}


KUBECONFIG = """apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "URL"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
"""


def kubeconfig_for(url: str, path: Path) -> Path:
    path.write_text(KUBECONFIG.replace("URL", url))
    return path


@dataclass
class Attached:
    running: Served
    database: Database
    cluster: KubernetesCluster
    mode: str = OWN
    system: System = field(init=False)
    ahead: int = 0
    """By so much the test has moved the clock, in microseconds."""
    may_act: Callable[[], bool] = lambda: True
    """Whether the installation holds its lock."""
    sent: list[str] = field(default_factory=list)
    """Every call but lists and watches, in the words of messages."""

    def __post_init__(self) -> None:
        self.controller, self.provisioner = PvController(self.running.http), ProvisionerPlayer(self.running.http)
        self._lives = 0
        transport = self.cluster._transport
        call = transport.call

        def counted(request: Any) -> Any:
            if not request.what.startswith(("list", "ask", "watch")):
                self.sent.append(request.what)
            return call(request)

        transport.call = counted  # type: ignore[method-assign]
        self.restart()

    def restart(self, cluster: Cluster | None = None) -> None:
        """The process is gone, and another begins on its store."""
        self._lives += 1
        life = self._lives
        observer = ClusterObserver(self.database, self.cluster, mode=self.mode)
        observer.mirror.kinds = WATCHED_KINDS
        ids = iter(range(1_000))
        self.system = embedded(
            self.database,
            owner=f"life-{life}",
            clock=self.now,
            new_id=lambda: f"b{life}-{next(ids)}",
            cluster=cluster or self.cluster,
            observer=observer,
            roles={ProcessRole.SCHEDULER},
            gate=GATE if self.mode == GATE_MODE else None,
            may_act=lambda: self.may_act(),
        )

    def lock(self, monotonic: Callable[[], float], find_holder: Callable[[], str | None]) -> InstallationLock:
        return InstallationLock(self.cluster, LOCKS[self.mode], find_holder, clock=self.now, monotonic=monotonic)

    def now(self) -> int:
        return system_clock() + self.ahead

    def create(self, *manifests: Manifest) -> None:
        self.running.create(*manifests)
        self.controller.offer()

    def until(self, condition: Callable[[], object], *, seconds: int = 0, binds: bool = False) -> None:
        """Before each look so many seconds pass, and the PV controller binds."""

        def stepped() -> object:
            self.system.step(self.now())
            self.wait(seconds)
            if binds:
                self.controller.bind()
            return condition()

        wait_until(stepped, progress=lambda: len(self.sent))

    def wait(self, seconds: int) -> None:
        self.ahead += seconds * SECOND

    def fault(self, name: str, resource: str, **given: Any) -> None:
        answer = self.running.http.post("/strict/faults", json={"fault": name, "resource": resource, **given})
        assert answer.status_code == 201, answer.text

    # What is so in the cluster ---------------------------------------------------------------------------

    def volume(self, name: str) -> Manifest:
        return dict(self.running.http.get(volume_path(name)).json())

    def claim(self, name: str) -> Manifest:
        return dict(self.running.http.get(claim_path(name)).json())

    def pod(self, name: str) -> Manifest:
        return dict(self.running.http.get(f"/api/v1/namespaces/default/pods/{name}").json())

    def node_of(self, name: str) -> str | None:
        found: str | None = self.pod(name).get("spec", {}).get("nodeName")
        return found

    def given_to(self, name: str) -> str | None:
        found: str | None = (self.volume(name)["spec"].get("claimRef") or {}).get("name")
        return found

    def marks(self, found: Manifest) -> dict[str, str]:
        return dict(found["metadata"].get("annotations") or {})

    # What we think --------------------------------------------------------------------------------------

    def legs(self) -> list[tuple[str, str, str]]:
        """Claim, state and reason of every leg of every binding, in the order of claims."""
        legs = tables.binding_legs
        with self.database.read() as connection:
            rows = connection.execute(select(legs).order_by(legs.c.binding, legs.c.claim))
            return [(row.claim.partition("/")[2], row.state, row.reason or "") for row in rows]

    def has_settled(self) -> bool:
        with self.database.read() as connection:
            queued = connection.execute(select(func.count()).select_from(tables.effects)).scalar()
            opened = connection.execute(
                select(func.count()).select_from(tables.bindings).where(tables.bindings.c.open)
            ).scalar()
            known = keys_of(connection, "node")
        return not queued and not opened and bool(known)


@contextmanager
def attached(running: Served, database: Database, *, mode: str = OWN) -> Iterator[Attached]:
    """Whatever the test plays, every call must be allowed by the role of the mode."""
    running.namespace("kube-system")
    can = replace(KUBERNETES, places_pods=mode == OWN)
    with over_http(running.url, kinds=WATCHED_KINDS, project=project, mode=mode, capabilities=can) as cluster:
        yield Attached(running, database, cluster, mode)
    assert used_permissions(running, mode) <= permissions_of(mode)


Used = tuple[str, str, str]
"""Verb, group and resource."""


def used_permissions(running: Served, mode: str) -> set[Used]:
    """What the server saw of a mode, but for the question what one may, which everybody may ask."""
    seen = running.http.get(CALLS_PATH).json()
    used = {(it["verb"], it["group"], it["resource"]) for it in seen if it["client"].endswith(f"({mode})")}
    return used - {("create", "authorization.k8s.io", "selfsubjectaccessreviews")}


def permissions_of(mode: str) -> set[Used]:
    return {(it.verb, *resource_of(it)) for it in MODES[mode]}


def two_nodes() -> tuple[Manifest, ...]:
    """A volume for each of two claims on either node, and a class for claims that are to be provisioned."""
    return (
        LOCAL,
        NETWORK,
        node("n1"),
        volume("small-1", "2Gi", "n1"),
        volume("large-1", "10Gi", "n1"),
        claim("data", "1Gi"),
        claim("logs", "5Gi"),
        claim("scratch", "1Gi", "network"),
    )
