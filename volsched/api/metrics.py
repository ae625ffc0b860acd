"""`/metrics` for Prometheus: how the store stands, asked for when it is scraped, and what was served over HTTP."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from volsched.api.watch_cache import Fan
from volsched.log.database import Database
from volsched.log.effects import EffectState
from volsched.log.integrity.anchors import AnchorNotes, anchor_notes
from volsched.log.leases import standings as standings_of
from volsched.log.reads.gauges import Gauges, read_gauges
from volsched.log.tokens import contradicted_tokens
from volsched.runtime.clock import SECOND, Clock


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
    """Read from the database at every scrape: no process has to remember, and all of them tell the same."""

    def __init__(self, database: Database, fan: Fan, clock: Clock) -> None:
        self._database, self._fan, self._clock = database, fan, clock

    def collect(self) -> Iterator[Metric]:
        with self._database.read() as connection:
            gauges = read_gauges(connection)
            contradicted = contradicted_tokens(connection)
            anchors = anchor_notes(connection)
        now = self._clock()
        standings = standings_of(self._database, now=now)
        yield _plain("volsched_log_position", "Position of the log's last event.", gauges.position)
        yield _plain(
            "volsched_tail_lag_events",
            "Events that the reader behind the watches has not read yet.",
            max(gauges.position - self._fan.position, 0),
        )
        yield _plain(
            "volsched_tokens_contradicted",
            "Tokens whose row is not what the log says; they let nobody in.",
            contradicted,
        )
        yield _plain("volsched_watches", "Watches that are open.", self._fan.watchers)
        yield _plain(
            "volsched_watches_cut_off", "Watches that could not keep up, since the start.", self._fan.cut_off
        )
        yield from _anchors(anchors, gauges.position, now)
        yield from _bindings(gauges, now)
        yield from _effects(gauges, now)
        yield _labelled("volsched_attempts", "Scheduling attempts on record.", "outcome", gauges.attempts)
        held = dict.fromkeys(gauges.leases, 0) | {it.lease.name: int(it.over is None) for it in standings}
        yield _labelled("volsched_lease_held", "Whether somebody holds the lease.", "lease", held)
        ages = {it.lease.name: it.age(now) / SECOND for it in standings}
        yield _labelled(
            "volsched_lease_renewal_age_seconds", "For how long nobody has renewed the lease.", "lease", ages
        )
        yield _plain(
            "volsched_log_ahead_seconds",
            "By how much the log's last event is ahead of this machine's clock.",
            max(gauges.at - now, 0) / SECOND,
        )


def _anchors(notes: AnchorNotes | None, position: int, now: int) -> Iterator[Metric]:
    """Nothing where nobody asks for anchors."""
    if notes is None:
        return
    yield _plain(
        "volsched_anchor_failing", "Whether the last automatic anchor could not be written.", int(notes.failing)
    )
    yield _plain(
        "volsched_anchor_lag_events", "Events that no automatic anchor proves yet.", position - notes.position
    )
    if notes.at:
        yield _plain(
            "volsched_anchor_age_seconds", "Since the last automatic anchor.", max(now - notes.at, 0) / SECOND
        )


def _bindings(gauges: Gauges, now: int) -> Iterator[Metric]:
    counts = {it.state: it.count for it in gauges.in_flight}
    ages = {it.state: (now - it.oldest) / SECOND for it in gauges.in_flight}
    yield _labelled("volsched_bindings_in_flight", "Open bindings.", "state", counts)
    yield _labelled("volsched_binding_oldest_seconds", "Age of the oldest open binding.", "state", ages)


def _effects(gauges: Gauges, now: int) -> Iterator[Metric]:
    told = GaugeMetricFamily("volsched_effects", "Effects by queue and state.", labels=("queue", "state"))
    for it in gauges.effects:
        told.add_metric((it.queue, it.state), it.count)
    yield told
    late: dict[str, float] = {}
    for it in gauges.effects:
        if it.state != EffectState.PARKED:
            late[it.queue] = max(late.get(it.queue, 0), (now - it.first_due) / SECOND)
    yield _labelled("volsched_effects_lag_seconds", "For how long the oldest effect has been due.", "queue", late)
    yield _plain("volsched_effects_parked", "Effects that were given up and wait for a person.", gauges.parked)


def _plain(name: str, help_: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_, value=value)


def _labelled(name: str, help_: str, label: str, values: dict[str, float] | dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
