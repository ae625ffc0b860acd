"""Generates `docs/drill-faults.md` from the table of `volsched.lab.faults`: a fault is described once.

python -m tools.drill_faults > docs/drill-faults.md
"""

import sys

from volsched.lab.faults import FAULTS, DrillFault, FaultWay

HEAD = """# Faults of drills

What a scenario can break ([drills.md](drills.md)). This page is generated from `volsched/lab/faults.py` by
`python -m tools.drill_faults`; `volsched drill list --faults` shows the same. `SERVICE` is one of `api`,
`scheduler`, `controller`, `worker`, `redis`, `postgres`, `all`, or an instance such as `worker-1`.
"""
SECTIONS = {
    FaultWay.STEP: ("Steps of drills with processes", "Under `faults` of a scenario, in order.", "step"),
    FaultWay.ATTACHED: (
        "Steps of drills on a foreign cluster",
        "Under `faults` of a scenario of kind `attached`, in order; each brings pods of its own.",
        "step",
    ),
    FaultWay.CHANCE: (
        "Chances of the simulation",
        "Under `chances`, from 0 to 1; usual values are shown.",
        "chance",
    ),
    FaultWay.POINT: (
        "Fault points",
        "As `moment: worker at executor.claimed`, or `VOLSCHED_FAULT=executor.claimed*2:kill` with "
        "`VOLSCHED_DRILL=1` (`kill`, `raise` or `stop`, at the second time).",
        "point",
    ),
}


def row(fault: DrillFault) -> str:
    drawn = f": {', '.join(f'`{it}`' for it in dict.fromkeys(fault.variants))}" if fault.variants else ""
    usage = fault.usage.replace("|", " or ")
    return f"| `{usage}` | {', '.join(fault.on)} | {fault.about}{drawn} | `{fault.injector}` |\n"


def page() -> str:
    text = HEAD
    for way, (title, how, column) in SECTIONS.items():
        text += f"\n## {title}\n\n{how}\n\n| {column} | on | what it does | injected by |\n|---|---|---|---|\n"
        text += "".join(row(it) for it in FAULTS if it.way is way)
    return text


if __name__ == "__main__":
    sys.stdout.write(page())
