"""Which drills there are, each in a line; a scenario file is another one."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from volsched.lab.drills.scenario import SIM, DrillScenario, ScenarioError, read_scenario

SCENARIOS: Mapping[str, DrillScenario] = {
    it.name: it
    for it in (
        DrillScenario(
            name="sim",
            about="the system stepped from a seed: crashes, sleeps, lost messages, foreign writers, bad clocks",
        ),
        DrillScenario(
            name="sim-crashes",
            about="like sim, and processes crash soon after nearly every third step",
            chances={"crash": 0.3, "others": 0.05},
        ),
        DrillScenario(
            name="sim-sleepers",
            about="like sim, and workers sleep past their leases and go on as if nothing had happened",
            chances={"sleep": 0.2, "crash": 0.02, "wait": 0.2},
        ),
        DrillScenario(
            name="sim-foreign",
            about="like sim, on a foreign cluster over a line that loses, delays and refuses calls",
            where=("foreign",),
            chances={"call": 0.4, "watch": 0.4},
        ),
        DrillScenario(
            name="sim-crowd",
            about="like sim, and users, administrators and thieves write at one choice in three",
            chances={"others": 0.33, "crash": 0.05},
        ),
        DrillScenario(
            name="sim-slow",
            about="like sim, and provisioners take their time while everybody else does not wait",
            chances={"slow": 0.95, "others": 0.35, "crash": 0.03, "sleep": 0.03},
        ),
        DrillScenario(
            name="sim-storage",
            about="like sim, and storage refuses, hangs, raises and delivers too little",
            where=("local",),
            chances={"storage": 0.15},
        ),
        DrillScenario(
            name="sim-refusals",
            about="like sim, and there is always a node that every rule accepts and a provisioner refuses",
            where=("local",),
            chances={"misfit": 1, "storage": 0.1},
        ),
        DrillScenario(
            name="sim-clocks",
            about="like sim, and clocks jump by up to a year either way, often just before a crash",
            chances={"skew": 0.25, "crash": 0.1, "wait": 0.15},
        ),
        DrillScenario(
            name="sim-attached",
            about="like sim, and a node attaches one disk, whatever is in flight",
            where=("local",),
            chances={"attached": 1.0, "others": 0.03},
        ),
    )
}
BESIDE: Mapping[str, str] = {
    "replay": "decide recorded requests again under another profile or configuration, and compare "
    "(volsched drill replay)",
    "rehearse": "run recovery on a copy of a store, and say what it would do, in how long "
    "(volsched drill rehearse)",
}
"""Drills that are commands of their own."""


FILES = Path(__file__).parent / "scenarios"
"""Drills with real processes: files as anybody may write them."""


def process_drills() -> list[DrillScenario]:
    return [read_scenario(path) for path in sorted(FILES.glob("*.yaml"))]


def scenario_named(name: str) -> DrillScenario:
    """One of ours, or of a file."""
    if name in SCENARIOS:
        return SCENARIOS[name]
    if name in {path.stem for path in FILES.glob("*.yaml")}:
        return read_scenario(FILES / f"{name}.yaml")
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return read_scenario(path)
    if name in BESIDE:
        raise ScenarioError(f'"{name}" is a command of its own: volsched drill {name} --help')
    near = get_close_matches(name, [it for it, _, _ in described()], 2)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ScenarioError(
        f'there is no drill "{name}"{meant or ";"} volsched drill list shows them, or give a scenario FILE.yaml'
    )


def described() -> list[tuple[str, str, str]]:
    """Name, kind and line of every drill."""
    played = [*SCENARIOS.values(), *process_drills()]
    rows = [(it.name, "simulation" if it.kind == SIM else "processes", it.about) for it in played]
    return [*rows, *((name, "on your store", about) for name, about in BESIDE.items())]
