"""The handler of `simulate`: for a store, for manifests, or for manifests laid over a store."""

from typing import Any

from volsched.questions.context import QuestionContext
from volsched.questions.simulate.parameters import ScenarioParameters
from volsched.questions.simulate.simulate import Scenario
from volsched.questions.source import (
    deciding_profile,
    named_object,
    objects_of,
    sight_of,
    simulation,
    states_as_of,
)


def simulate(context: QuestionContext, parameters: ScenarioParameters) -> dict[str, Any]:
    scenario = Scenario(
        drain=tuple(parameters.drain),
        lose_nodes=tuple(parameters.loseNodes),
        lose_zones=tuple(parameters.loseZones),
        add=tuple(objects_of(parameters.add)),
        delete=tuple(named_object(it) for it in parameters.delete),
    )
    profile = deciding_profile(context, None)
    if parameters.as_of is None:
        sight = sight_of(context.store, context.over, profile=profile)
    else:
        then = states_as_of(context.database, parameters.as_of, now=context.now)
        sight = sight_of(context.database, context.over, profile=profile, then=then)
    return simulation(sight, scenario)
