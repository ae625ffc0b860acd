"""The handler of `explain`: for a store, for manifests, or for manifests laid over a store."""

from typing import Any

from volsched.questions.context import QuestionContext
from volsched.questions.explain.parameters import ExplainParameters
from volsched.questions.explain.sampled_store import explanation_from_sample
from volsched.questions.source import (
    check_names,
    deciding_profile,
    explanation,
    objects_of,
    past_explanation,
    sight_of,
)


def explain(context: QuestionContext, parameters: ExplainParameters) -> dict[str, Any]:
    if parameters.as_of is not None:
        return past_explanation(
            context.database,
            parameters.key,
            as_of=parameters.as_of,
            now=context.now,
            namespaces=context.namespaces,
        )
    profile = deciding_profile(context, parameters.profile)
    over = [*context.over, *objects_of(parameters.manifests)]
    store = None if parameters.alone else context.store
    if store is not None:
        check_names(store, over, pod=parameters.key, node=parameters.node, namespaces=context.namespaces)
        answer = explanation_from_sample(
            store,
            over,
            parameters.key,
            profile=profile,
            now=context.now,
            node=parameters.node,
            namespaces=context.namespaces,
        )
        if answer is not None:
            return answer
    sight = sight_of(store, over, profile=profile)
    return explanation(sight, parameters.key, node=parameters.node, now=context.now, namespaces=context.namespaces)
