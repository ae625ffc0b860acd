"""The table of faults is what the injectors can do, and what people read."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run, run
from tools.drill_faults import page
from volsched.cluster.foreign_api import ForeignApi
from volsched.cluster.port import KUBERNETES
from volsched.cluster.simulated import Fate
from volsched.lab.drills.process_faults import CARRIED_OUT
from volsched.lab.drills.process_work import named
from volsched.lab.faults import CHANCES, FAULTS, ON_SQLITE, SERVICES, STEPS, DrillFault
from volsched.lab.simulation.actors import Others
from volsched.provisioning.simulated import FAILURES

__all__ = ["run"]

ROOT = Path(__file__).parents[2]


def test_every_step_is_carried_out_and_no_other() -> None:
    assert CARRIED_OUT.keys() == STEPS.keys()


def test_a_step_is_for_the_engines_that_have_what_it_breaks() -> None:
    for step in STEPS.values():
        services = set(step.targets) & set(SERVICES)
        has_any = not services or any(named(ON_SQLITE, it) for it in services)
        assert (ON_SQLITE in step.on) == has_any, step.name


def test_variants_are_what_the_simulation_can_play() -> None:
    deeds = Others(ForeignApi(now_text=str, capabilities=KUBERNETES)).deeds
    assert set(CHANCES["others"].variants) == deeds.keys()
    assert set(CHANCES["call"].variants) == set(Fate) - {Fate.ANSWERED}
    assert set(CHANCES["storage"].variants) <= set(FAILURES)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda it: f"{it.way}-{it.name}")
def test_a_fault_names_the_module_that_injects_it(fault: DrillFault) -> None:
    assert (ROOT / "volsched" / fault.injector).is_file()


def test_the_page_of_faults_is_made_from_the_table() -> None:
    """After a change of a fault: python -m tools.drill_faults > docs/drill-faults.md"""
    assert (ROOT / "docs" / "drill-faults.md").read_text() == page()


def test_the_faults_are_listed(run: Run) -> None:
    ran = run("drill", "list", "--faults")
    assert ran.code == 0
    assert all(it.usage in ran.out for it in FAULTS)
