"""How `explain` is asked of a store, of manifests, or of manifests laid over a store."""

from typing import Any

from volsched.questions.context import QuestionContext
from volsched.questions.explain.parameters import ExplainParameters
from volsched.questions.source import (
    check_names,
    deciding_profile,
    explained,
    explained_as_of,
    explained_in_part,
    objects_of,
    sight_of,
)


def explain(context: QuestionContext, asked: ExplainParameters) -> dict[str, Any]:
    if asked.as_of is not None:
        return explained_as_of(
            context.database, asked.key, as_of=asked.as_of, now=context.now, namespaces=context.namespaces
        )
    profile = deciding_profile(context, asked.profile)
    over = [*context.over, *objects_of(asked.manifests)]
    store = None if asked.alone else context.store
    if store is not None:
        check_names(store, over, pod=asked.key, node=asked.node, namespaces=context.namespaces)
        told = explained_in_part(
            store,
            over,
            asked.key,
            profile=profile,
            now=context.now,
            node=asked.node,
            namespaces=context.namespaces,
        )
        if told is not None:
            return told
    seen = sight_of(store, over, profile=profile)
    return explained(seen, asked.key, node=asked.node, now=context.now, namespaces=context.namespaces)
