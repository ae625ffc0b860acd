"""Monitoring: `/metrics` for Prometheus; `/livez`, `/readyz` and `/healthz` as in Kubernetes."""

from collections import Counter as Counted
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from volsched.api.services import Services
from volsched.api.watch_cache import Fan
from volsched.log import leases
from volsched.log.batch import CARRIED_US, Head
from volsched.log.database import FULL, Database
from volsched.log.effects import EffectState
from volsched.log.errors import StoreError
from volsched.log.integrity.anchors import AnchorNotes, anchor_notes
from volsched.log.leases import LeaseStanding
from volsched.log.leases import standings as standings_of
from volsched.log.observed_cluster import MOST_SILENT, Gap, KnownCursor, drifted_kinds, gaps, known_cursors
from volsched.log.reads.lookups import Gauges, read_gauges
from volsched.log.reads.tail import read_head
from volsched.log.tokens import contradicted_tokens
from volsched.pv_controller.controller import LEASE_NAME
from volsched.questions.status.storage_tally import StorageTally
from volsched.runtime.clock import SECOND, Clock

MOST_LAG = 10_000
"""Events that the reader behind the watches may lag before we report not ready."""
FULL_FOR = 30 * SECOND
"""How long the store counts as full after a failed write, unless another write has succeeded since."""
LEAST_FREE = 2**20
"""Bytes on the disk of an SQLite store."""
WITHHELD = "reason withheld"
"""Shown to unknown callers: the fault may name machines and files."""

Checks = dict[str, str | None]
"""Check → its fault."""


async def alive(services: Services) -> Checks:
    """Only faults that a restart would fix: a database that is down is no reason to restart us."""
    return {"tail": None if services.fan.position >= 0 else "the log was not read yet"}


async def ready(services: Services) -> Checks:
    checks = await alive(services)
    try:
        head, leading = await services.read(_head_and_controller, services)
        checks["room"] = await services.read(_free_space_fault, services)
    except StoreError as error:
        return checks | {"store": str(error)}
    lag = head.position - services.fan.position
    if lag > MOST_LAG:
        checks["tail"] = f"watches are {lag} events behind the log"
    stopping = "the server is shutting down" if services.fan.stopping else None
    now = services.clock()
    faults = {"clock": _clock_fault(head, now), "controller": _controller_fault(leading, now)}
    if services.follows:
        faults["cluster"] = await services.read(cluster_trouble, services)
    return checks | {"store": None, "shutdown": stopping} | faults


def _free_space_fault(services: Services) -> str | None:
    """A full store accepts no writes: clients should use another server until there is space again."""
    # A time ahead of ours: the clock was set back since.
    if services.full_at is not None and 0 <= services.clock() - services.full_at < FULL_FOR:
        return FULL
    free = services.database.file.free_bytes()
    return FULL if free is not None and free < LEAST_FREE else None


def checks_text(checks: Checks, *, name: str, verbose: bool) -> str:
    failed = [check for check, fault in checks.items() if fault is not None]
    if not failed and not verbose:
        return "ok"
    lines = [
        f"[+]{check} ok" if fault is None else f"[-]{check} failed: {fault}" for check, fault in checks.items()
    ]
    return "\n".join([*lines, f"{name} check {'failed' if failed else 'passed'}", ""])


def _head_and_controller(services: Services) -> tuple[Head, LeaseStanding | None]:
    with services.database.read() as connection:
        head = read_head(connection)
    standings = leases.standings(services.database, now=services.clock())
    return head, next((it for it in standings if it.lease.name == LEASE_NAME), None)


def cluster_trouble(services: Services) -> str | None:
    """None: every observed kind was listed, and the cluster answered about it a short while ago."""
    with services.database.read() as connection:
        cursors = known_cursors(connection)
    if not cursors:
        return "the cluster is being listed for the first time"
    kind, oldest = min(cursors.items(), key=lambda it: it[1].heard_at)
    silent = services.clock() - oldest.heard_at
    return None if silent <= MOST_SILENT else f"the cluster sent nothing about {kind} for {silent // SECOND} s"


def _clock_fault(head: Head, now: int) -> str | None:
    ahead = head.at - now
    if ahead <= CARRIED_US:
        return None
    return (
        f"the log's last event is {ahead // SECOND} s ahead of this machine's clock: this clock is slow, or "
        "that of the last writer was fast; correct it, and the next write has the right time"
    )


def _controller_fault(leading: LeaseStanding | None, now: int) -> str | None:
    """A controller that released its lease, or never ran, may be intended: that is for an alert to decide."""
    if leading is None or not leading.given_up(now):
        return None
    return (
        f"no controller holds the lease: {leading.over}, and {leading.lease.holder} has not renewed it for "
        f"{leading.age(now) // SECOND} s; start volsched serve controller"
    )


# `/metrics` for Prometheus: the state of the store, read at each scrape, and HTTP counters.


class HttpMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("verb", "resource", "code")
        self._requests = Counter("volsched_http_requests", "Requests served.", labels, registry=registry)
        self._seconds = Histogram(
            "volsched_http_request_seconds",
            "Time until a request was answered; of a watch, until it began.",
            ("verb",),
            registry=registry,
        )

    def count(self, verb: str, resource: str, code: int, seconds: float) -> None:
        self._requests.labels(verb, resource, str(code)).inc()
        self._seconds.labels(verb).observe(seconds)


class StoreMetrics(Collector):
    """Read from the database at every scrape: no process keeps state, and all report the same."""

    def __init__(self, database: Database, fan: Fan, clock: Clock, tally: StorageTally) -> None:
        self._database, self._fan, self._clock, self._tally = database, fan, clock, tally

    def collect(self) -> Iterator[Metric]:
        with self._database.read() as connection:
            gauges = read_gauges(connection)
            contradicted = contradicted_tokens(connection)
            anchors = anchor_notes(connection)
            observed, known_gaps, drifted = known_cursors(connection), gaps(connection), drifted_kinds(connection)
        now = self._clock()
        yield from _mirror(observed, known_gaps, drifted, now)
        standings = standings_of(self._database, now=now)
        yield _gauge("volsched_log_position", "Position of the log's last event.", gauges.position)
        yield _gauge(
            "volsched_tail_lag_events",
            "Events that the reader behind the watches has not read yet.",
            max(gauges.position - self._fan.position, 0),
        )
        yield _gauge(
            "volsched_tokens_contradicted",
            "Tokens whose row contradicts the log; they are refused.",
            contradicted,
        )
        yield _gauge("volsched_watches", "Watches that are open.", self._fan.watchers)
        yield _gauge(
            "volsched_watches_cut_off", "Watches that could not keep up, since the start.", self._fan.cut_off
        )
        yield from _anchors(anchors, gauges.position, now)
        yield from _bindings(gauges, now)
        yield from _effects(gauges, now)
        yield _gauges("volsched_attempts", "Scheduling attempts on record.", "outcome", gauges.attempts)
        holders = dict.fromkeys(gauges.leases, 0) | {it.lease.name: int(it.over is None) for it in standings}
        yield _gauges("volsched_lease_held", "Whether the lease is held.", "lease", holders)
        ages = {it.lease.name: it.age(now) / SECOND for it in standings}
        yield _gauges("volsched_lease_renewal_age_seconds", "Since the last renewal of the lease.", "lease", ages)
        yield _gauge(
            "volsched_log_ahead_seconds",
            "By how much the log's last event is ahead of this machine's clock.",
            max(gauges.at - now, 0) / SECOND,
        )
        yield from _storage(self._tally, gauges)
        yield from _waits(self._tally, now)
        yield from process_metrics(self._database)


def _anchors(notes: AnchorNotes | None, position: int, now: int) -> Iterator[Metric]:
    """No metrics where anchors are disabled."""
    if notes is None:
        return
    yield _gauge(
        "volsched_anchor_failing", "Whether the last automatic anchor could not be written.", int(notes.failing)
    )
    yield _gauge(
        "volsched_anchor_lag_events", "Events that no automatic anchor proves yet.", position - notes.position
    )
    if notes.at:
        yield _gauge(
            "volsched_anchor_age_seconds", "Since the last automatic anchor.", max(now - notes.at, 0) / SECOND
        )


def _mirror(
    cursors: Mapping[str, KnownCursor], known_gaps: Sequence[Gap], drifted: Sequence[str], now: int
) -> Iterator[Metric]:
    """No metrics where no cluster is observed."""
    if not cursors:
        return
    heard = {kind: max(now - it.heard_at, 0) / SECOND for kind, it in cursors.items()}
    yield _gauges(
        "volsched_mirror_last_heard_seconds", "Since the cluster last answered about a kind.", "kind", heard
    )
    versions = {kind: it.cursor for kind, it in cursors.items()}
    yield _gauges("volsched_mirror_version", "The version up to which a kind is known.", "kind", versions)
    yield _gauges(
        "volsched_mirror_gaps",
        "Times that a kind had to be listed again, since the store was created.",
        "kind",
        dict(Counted(it.kind for it in known_gaps)),
    )
    yield _gauges(
        "volsched_mirror_drift",
        "Times that a kind differed from the cluster and stayed so, since the store was created.",
        "kind",
        dict.fromkeys(cursors, 0) | Counted(drifted),
    )


def _bindings(gauges: Gauges, now: int) -> Iterator[Metric]:
    counts = {it.state: it.count for it in gauges.in_flight}
    ages = {it.state: (now - it.oldest) / SECOND for it in gauges.in_flight}
    yield _gauges("volsched_bindings_in_flight", "Open bindings.", "state", counts)
    yield _gauges("volsched_binding_oldest_seconds", "Age of the oldest open binding.", "state", ages)


def _effects(gauges: Gauges, now: int) -> Iterator[Metric]:
    counts = GaugeMetricFamily("volsched_effects", "Effects by queue and state.", labels=("queue", "state"))
    for row in gauges.effects:
        counts.add_metric((row.queue, row.state), row.count)
    yield counts
    late: dict[str, float] = {}
    for row in gauges.effects:
        if row.state != EffectState.PARKED:
            late[row.queue] = max(late.get(row.queue, 0), (now - row.first_due) / SECOND)
    yield _gauges("volsched_effects_lag_seconds", "For how long the oldest effect has been due.", "queue", late)
    yield _gauge("volsched_effects_parked", "Parked effects, which wait for an operator.", gauges.parked)


def _storage(tally: StorageTally, gauges: Gauges) -> Iterator[Metric]:
    """Summed from groups that follow the log: no volume is read."""
    labels = ("class", "zone", "phase")
    volumes = GaugeMetricFamily("volsched_volumes", "PersistentVolumes.", labels=labels)
    for row in tally.volumes_by_phase():
        volumes.add_metric((row.class_name, row.zone, row.kind), row.count)
    yield volumes
    claims = GaugeMetricFamily("volsched_claims", "PersistentVolumeClaims.", labels=labels)
    requested = GaugeMetricFamily("volsched_claim_requested_bytes", "Bytes that claims request.", labels=labels)
    for row in tally.claims():
        claims.add_metric((row.class_name, row.zone, row.kind), row.count)
        requested.add_metric((row.class_name, row.zone, row.kind), row.bytes)
    yield claims
    yield requested
    sizes = GaugeMetricFamily(
        "volsched_volume_bytes",
        "Bytes of volumes: free, reserved (taken, not bound yet), bound, released or failed.",
        labels=("class", "zone", "use"),
    )
    for row in tally.volumes_by_use():
        sizes.add_metric((row.class_name, row.zone, row.kind), row.bytes)
    yield sizes
    provisionable = GaugeMetricFamily(
        "volsched_provisionable_bytes", "Bytes that provisioners could still create.", labels=("class", "zone")
    )
    for row in tally.room():
        provisionable.add_metric((row.class_name, row.zone), row.bytes)
    yield provisionable
    yield _gauge(
        "volsched_provisioning_reserved_bytes",
        "Bytes of provisionable capacity that open bindings have reserved.",
        gauges.reserved_bytes,
    )


def _waits(tally: StorageTally, now: int) -> Iterator[Metric]:
    yield _gauges("volsched_pods", "Pods.", "phase", tally.pods())
    pending = dict(tally.pending())
    yield _gauges("volsched_pods_pending", "Pods without a node, by reason.", "reason", pending)
    oldest = tally.oldest_pending()
    waited = 0.0 if oldest is None else max(now - oldest, 0) / SECOND
    yield _gauge("volsched_pod_pending_oldest_seconds", "For how long the oldest of them has waited.", waited)
    gated, first = tally.gated()
    yield _gauge("volsched_pods_gated", "Pods that wait behind our scheduling gate.", gated)
    behind = 0.0 if first is None else max(now - first, 0) / SECOND
    yield _gauge("volsched_pod_gated_oldest_seconds", "For how long the oldest of them has waited.", behind)
    yield HistogramMetricFamily(
        "volsched_pod_bound_seconds",
        "From the creation of a pod until it had its node, since this process started.",
        buckets=tally.bound_after.buckets(),
        sum_value=tally.bound_after.sum,
    )
    ended = HistogramMetricFamily(
        "volsched_binding_seconds",
        "From the plan of a binding to its end, since this process started.",
        labels=("outcome",),
    )
    for outcome, times in sorted(tally.ended_after.items()):
        ended.add_metric((outcome,), buckets=times.buckets(), sum_value=times.sum)
    yield ended
    yield _counter("volsched_rollbacks", "Bindings that were given up.", "reason", tally.rollbacks)
    yield _counter(
        "volsched_conflicts",
        "Volumes and claims that others wrote between our plan and our write.",
        "class",
        tally.conflicts,
    )
    yield _counter(
        "volsched_provisioning_failures",
        "How often a provisioner failed to create a volume.",
        "class",
        tally.failed_provisionings,
    )


def process_metrics(database: Database) -> Iterator[Metric]:
    """How long this process takes to decide, if it schedules, and how long it holds the lock on the log's head."""
    decision_times = database.meters.decisions
    yield HistogramMetricFamily(
        "volsched_decision_seconds",
        "Time to decide about one pod, in this process.",
        buckets=decision_times.buckets(),
        sum_value=decision_times.sum,
    )
    lock_times = database.meters.head_lock
    yield HistogramMetricFamily(
        "volsched_log_lock_seconds",
        "Time from the lock on the log's head to the commit of one transaction, in this process.",
        buckets=lock_times.buckets(),
        sum_value=lock_times.sum,
    )


class ProcessMetrics(Collector):
    """The metrics of a process without an API."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def collect(self) -> Iterator[Metric]:
        yield from process_metrics(self._database)


def serve_process_metrics(database: Database, port: int) -> None:
    """Serves in its own thread, on loopback, as long as the process lives."""
    registry = CollectorRegistry()
    registry.register(ProcessMetrics(database))
    ProcessCollector(registry=registry)
    start_http_server(port, addr="127.0.0.1", registry=registry)


def _counter(name: str, help_: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, help_, labels=(label,))
    for key, value in sorted(counts.items()):
        family.add_metric((key,), value)
    return family


def _gauge(name: str, help_: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_, value=value)


def _gauges(name: str, help_: str, label: str, values: dict[str, float] | dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
