"""How `simulate` is asked of a store, of manifests, or of manifests laid over a store."""

from typing import Any

from volsched.questions.context import QuestionContext
from volsched.questions.simulate.parameters import ScenarioParameters
from volsched.questions.simulate.simulate import Scenario
from volsched.questions.source import deciding_profile, named_object, objects_of, sight_of, simulated


def simulate(context: QuestionContext, asked: ScenarioParameters) -> dict[str, Any]:
    scenario = Scenario(
        drain=tuple(asked.drain),
        lose_nodes=tuple(asked.loseNodes),
        lose_zones=tuple(asked.loseZones),
        add=tuple(objects_of(asked.add)),
        delete=tuple(named_object(it) for it in asked.delete),
    )
    seen = sight_of(context.store, context.over, profile=deciding_profile(context, None))
    return simulated(seen, scenario)
