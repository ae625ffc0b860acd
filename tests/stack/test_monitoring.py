"""Alerts and dashboard ask for metrics that are really served, under labels that they really have."""

import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml

from tests.stack.composed import compose
from tests.stack.processes import ROOT
from tests.support.clusters import LOCAL, Stepped, node, pod
from tests.support.histories import fill
from tests.support.patience import wait_until
from tests.support.serving import served
from tests.support.store_samples import append, create_volume, must, plan
from volsched.api.health import serve_process_metrics
from volsched.binding.rules.reasons import CHANGED
from volsched.cli.app import Verbs
from volsched.log.batch import Head
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.envelope import NewEvent
from volsched.log.integrity.anchors import note_anchor
from volsched.log.leases import acquire
from volsched.runtime.clock import SECOND, system_clock

DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\b((?:volsched|process)_[a-z_]+)(?:\{([^}]*)\})?")
BY = re.compile(r"by \(([^)]*)\)")
OF_PROMETHEUS = {"job", "instance"}
"""Labels that the scrape adds."""

NOT_DRAWN = {"volsched_http_refused_total"}
"""Counted for whoever looks for a reason, not for a panel."""


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"] for rule in group["rules"]
    ]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    yield from ((rule["alert"], rule["expr"]) for rule in rules())
    yield from ((panel["title"], it["expr"]) for panel in panels() for it in panel["targets"])


def happening() -> Iterator[Command]:
    """A claim and a pod that waits for it, a provisioner that fails, and a binding that is given up."""
    about = {"kind": "PersistentVolumeClaim", "namespace": "db", "name": "late"}
    made = {
        "claim/db/late": {"spec": {"storageClassName": "fast"}, "status": {"phase": "Pending"}},
        "pod/db/late": {"spec": {}, "status": {"phase": "Pending"}},
        "capacity/db/rack": {"storageClassName": "fast", "capacity": "5Gi"},
        "notice/db/late.1": {"reason": "ProvisioningFailed", "involvedObject": about},
    }
    for stream, manifest in made.items():
        noun = stream.partition("/")[0]
        yield append(NewEvent(stream=stream, type=f"{noun.capitalize()}Created", data={"patch": manifest}))
    for state, is_open in (("compensating", True), ("rolled-back", False)):
        data = {"state": state, "open": is_open, "reason": "somebody was faster"}
        yield append(NewEvent(stream="binding/b2", type="BindingMoved", data=data, binding="b2"))
    yield create_volume("d")
    yield plan("b3", "d", claim="db/third")
    data = {"leg": 0, "state": "voided", "open": False, "reason": f'PersistentVolume "d" {CHANGED}'}
    yield append(NewEvent(stream="binding/b3", type="LegMoved", data=data, binding="b3"))


@pytest.fixture
def scraped(sqlite: Database) -> dict[str, set[str]]:
    """Metric → its labels, of a server that has something of everything."""
    fill(sqlite)
    assert acquire(sqlite, name="controller", holder="test", now=system_clock(), ttl=60 * SECOND) is not None
    note_anchor(sqlite, Head(1, bytes(32), 1), now=system_clock(), written=True)
    names: dict[str, set[str]] = {}
    with served(sqlite) as up:
        up.http.get("/api/v1/pods")
        # Counted from here on: a process counts what happens while it runs.
        must(sqlite, *happening())
        wait_until(lambda: "volsched_conflicts_total{" in up.http.get("/metrics").text)
        for line in up.http.get("/metrics").text.splitlines():
            if not line.startswith("#"):
                found = re.match(r"([a-zA-Z_0-9]+)(?:\{(.*)\})? ", line)
                assert found is not None, line
                names.setdefault(found[1], set()).update(re.findall(r"([a-z_]+)=\"", found[2] or ""))
    return names


def test_every_metric_and_label_that_is_asked_for_is_served(scraped: dict[str, set[str]]) -> None:
    for where, expression in expressions():
        asked = METRIC.findall(expression)
        assert asked or where == "VolschedDown", f"{where} asks for no metric of ours"
        grouped = {label.strip() for labels in BY.findall(expression) for label in labels.split(",")}
        for name, selector in asked:
            assert name in scraped, f"{where} asks for {name}, which is not served"
            labels = grouped | set(re.findall(r"([a-z_]+)\s*[=!]", selector))
            assert labels <= scraped[name] | OF_PROMETHEUS | {"le"}, f"{where}: {name} has not all of {labels}"


def test_what_is_served_of_our_own_is_drawn_or_watched(scraped: dict[str, set[str]]) -> None:
    asked = {name for _, expression in expressions() for name, _ in METRIC.findall(expression)}
    served_names = {it for it in scraped if it.startswith("volsched_") and not it.endswith(("_created", "_sum"))}
    assert {it for it in served_names if not it.endswith("_count")} - asked <= NOT_DRAWN


def test_every_alert_says_how_bad_it_is_what_is_wrong_and_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
        assert {"summary", "action"} <= rule["annotations"].keys(), rule["alert"]
    assert len({rule["alert"] for rule in rules()}) == len(rules())


def test_every_panel_says_what_it_shows_and_none_lies_on_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        assert panel["description"], panel["title"]
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_commands_that_alerts_name_exist() -> None:
    verbs = {it.name for entries in Verbs.table.values() for it in entries}
    for rule in rules():
        for verb in re.findall(r"volsched ([a-z]+)", rule["annotations"]["action"]):
            assert verb in verbs, f"{rule['alert']} names volsched {verb}"


def test_memory_is_reported_before_the_container_is_killed_for_it() -> None:
    (rule,) = [it for it in rules() if it["alert"] == "VolschedMemory"]
    assert compose()["services"]["api"]["mem_limit"] == "1g"
    assert float(rule["expr"].rpartition(">")[2]) < 0.8 * (1 << 30)


def test_files_are_where_the_documentation_says() -> None:
    told = (ROOT / "docs" / "operations.md").read_text()
    assert "deploy/alerts.yml" in told
    assert "deploy/dashboard.json" in told


def test_a_scheduler_without_an_api_serves_how_long_it_decides(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [LOCAL, node("node-0"), pod("db")])
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve_process_metrics(sqlite, port)
    served_text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert "volsched_decision_seconds_count 1.0" in served_text
    assert 'volsched_decision_seconds_bucket{le="+Inf"} 1.0' in served_text
