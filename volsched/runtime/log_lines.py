"""Log lines of a process about its work, derived only from the events that it has committed.

All are declared here. A line names the ids for `volsched history binding ID`, `volsched audit why ATTEMPT` and
`volsched audit cause POSITION`. Every process logs its own commits, so that in a stack each line is logged once.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from volsched.binding.rules.phases import Phase
from volsched.kube.display_text import counted
from volsched.kube.meta import PROVISIONED_BY
from volsched.log.commit_listeners import Commit, LeaseChange
from volsched.log.database import Database
from volsched.log.events.envelope import Event
from volsched.log.events.fold import BindingState, State
from volsched.log.events.streams import noun_and_key
from volsched.pv_controller.rules.reasons import PROVISIONING_FAILED
from volsched.runtime.clock import SECOND
from volsched.scheduling.rules.attempts import PLANNED

ROOT = "volsched"
SLOW_SECONDS = 1.0
"""A transaction blocks every other writer; a healthy one takes milliseconds."""
ROLES = frozenset({"controller", "recovery"})
"""Leases of roles. Workers take the other leases in turn every second; these are logged only at debug level."""
Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LogLine:
    level: int
    logger: str
    """The logger's name below `volsched.`: scheduling, binding, provisioning, leases or log."""
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)


def lines_of(commit: Commit) -> Iterator[LogLine]:
    """The log lines of a commit: one for each event that is worth logging."""
    for event in commit.events:
        line = _LINES.get(event.type)
        if line is not None and (made := line(event, orjson.loads(event.data), commit.states)) is not None:
            yield made


def detail_of(event: Event) -> LogLine:
    """The line of any event, for a full trace."""
    return LogLine(logging.DEBUG, "log", f"{event.type} {event.stream}", _about(event) | {"actor": event.actor})


def lease_line(change: LeaseChange) -> LogLine:
    level = logging.INFO if change.name in ROLES else logging.DEBUG
    about = {"lease": change.name, "holder": change.holder, "epoch": change.epoch}
    if not change.taken:
        return LogLine(level, "leases", f"lease {change.name} given up by {change.holder}", about)
    if change.from_holder:
        level = logging.WARNING if change.name in ROLES else level
        took = f"lease {change.name} taken over by {change.holder}: {change.from_holder} did not renew it"
        return LogLine(level, "leases", took, about)
    return LogLine(level, "leases", f"lease {change.name} taken by {change.holder}", about)


def slow_line(commit: Commit) -> LogLine:
    first, last = commit.events[0], commit.events[-1]
    message = (
        f"slow transaction: {len(commit.events)} events of {first.actor} took {commit.seconds:.2f} s, "
        f"and blocked all other writers"
    )
    about = {"seconds": round(commit.seconds, 3), "events": len(commit.events), "position": first.position}
    return LogLine(logging.WARNING, "log", message, about | {"lastPosition": last.position})


class LogLines:
    """Listens to the commits of this process, and writes them to its log."""

    def __init__(self, slow_seconds: float = SLOW_SECONDS) -> None:
        self._slow_seconds = slow_seconds
        self._loggers: dict[str, logging.Logger] = {}

    def committed(self, commit: Commit) -> None:
        root = logging.getLogger(ROOT)
        if root.isEnabledFor(logging.DEBUG):
            for event in commit.events:
                self._emit(detail_of(event))
        if root.isEnabledFor(logging.WARNING):
            for line in lines_of(commit):
                self._emit(line)
            if commit.seconds >= self._slow_seconds:
                self._emit(slow_line(commit))

    def lease_changed(self, change: LeaseChange) -> None:
        self._emit(lease_line(change))

    def _emit(self, line: LogLine) -> None:
        logger = self._loggers.get(line.logger)
        if logger is None:
            logger = self._loggers[line.logger] = logging.getLogger(f"{ROOT}.{line.logger}")
        logger.log(line.level, "%s", line.message, extra={"volsched": line.fields})


def log_commits(database: Database, *, slow_seconds: float = SLOW_SECONDS) -> None:
    """Log this process's writes to the store from now on."""
    database.listeners.append(LogLines(slow_seconds))


def _about(event: Event) -> dict[str, Any]:
    return {"position": event.position} | ({} if event.binding is None else {"binding": event.binding})


def _planned(event: Event, data: Data, _: Mapping[str, State]) -> LogLine:
    binding, claims = noun_and_key(event.stream)[1], data["legs"]
    about = {"pod": data["pod"], "node": data["node"], "binding": binding, "position": event.position}
    verb = "reserved on" if data.get("reserved") else "placed on"
    bound = f"with {counted(len(claims), 'claim')} to bind" if claims else "with no claim to bind"
    return LogLine(logging.INFO, "scheduling", f"pod {data['pod']} {verb} {data['node']}, {bound}", about)


def _refused(event: Event, data: Data, _: Mapping[str, State]) -> LogLine | None:
    if data["outcome"] == PLANNED:
        return None
    reason = str(data["detail"].get("message", ""))
    attempt = noun_and_key(event.stream)[1]
    about = {"pod": data["pod"], "attempt": attempt, "position": event.position, "reason": reason}
    return LogLine(logging.WARNING, "scheduling", f"pod {data['pod']} found no node: {reason}", about)


def _binding_moved(event: Event, data: Data, states: Mapping[str, State]) -> LogLine | None:
    state = states.get(event.stream)
    if data["open"] or not isinstance(state, BindingState):
        return None
    plan, seconds = state.plan, (event.at - state.planned_at) / SECOND
    pod, node, binding = plan["pod"], plan["node"], noun_and_key(event.stream)[1]
    about: dict[str, Any] = {"pod": pod, "node": node, "binding": binding, "position": event.position}
    about["seconds"] = round(seconds, 3)
    if data["state"] == Phase.COMMITTED:
        return LogLine(logging.INFO, "binding", f"pod {pod} bound to {node} after {seconds:.2f} s", about)
    reason = data.get("reason") or "no reason was given"
    told = f"binding of pod {pod} to {node} rolled back after {seconds:.2f} s: {reason}"
    return LogLine(logging.WARNING, "binding", told, about | {"reason": reason})


def _volume_created(event: Event, data: Data, _: Mapping[str, State]) -> LogLine | None:
    manifest = data["patch"]
    provisioner = (manifest.get("metadata", {}).get("annotations") or {}).get(PROVISIONED_BY)
    if provisioner is None:
        return None
    volume, spec = noun_and_key(event.stream)[1], manifest.get("spec", {})
    ref = spec.get("claimRef") or {}
    claim = f"{ref.get('namespace')}/{ref.get('name')}"
    about = {"volume": volume, "claim": claim, "class": spec.get("storageClassName"), "provisioner": provisioner}
    size = (spec.get("capacity") or {}).get("storage", "?")
    told = f"volume {volume} ({size}) provisioned for claim {claim} by {provisioner}"
    return LogLine(logging.INFO, "provisioning", told, about | _about(event))


def _notice(event: Event, data: Data, _: Mapping[str, State]) -> LogLine | None:
    notice = data["patch"]
    if notice.get("reason") != PROVISIONING_FAILED:
        return None
    involved = notice.get("involvedObject") or {}
    claim, message = f"{involved.get('namespace')}/{involved.get('name')}", str(notice.get("message", ""))
    about = {"claim": claim, "reason": message} | _about(event)
    return LogLine(logging.WARNING, "provisioning", f"provisioning for claim {claim} failed: {message}", about)


def _lease_freed(event: Event, data: Data, _: Mapping[str, State]) -> LogLine:
    name = noun_and_key(event.stream)[1]
    about = {"lease": name, "holder": data["holder"], "epoch": data["epoch"], "position": event.position}
    told = f"lease {name} taken away from {data['holder']} by {event.actor}"
    return LogLine(logging.WARNING, "leases", told, about)


def _clock_corrected(event: Event, data: Data, _: Mapping[str, State]) -> LogLine:
    ahead = (data["before"] - data["after"]) / SECOND
    told = f"the log's time was {ahead:.0f} s ahead of this machine's clock, and follows it from here on"
    return LogLine(logging.WARNING, "log", told, _about(event))


_LINES: Mapping[str, Callable[[Event, Data, Mapping[str, State]], LogLine | None]] = {
    "BindingPlanned": _planned,
    "AttemptMade": _refused,
    "BindingMoved": _binding_moved,
    "VolumeCreated": _volume_created,
    "NoticeCreated": _notice,
    "LeaseFreed": _lease_freed,
    "ClockCorrected": _clock_corrected,
}
