"""Volumes that were offered again with contents that nobody vouches for: data can leak from one to another."""

from itertools import pairwise
from typing import Any

from volsched.kube.manifest import status
from volsched.kube.storage import AVAILABLE
from volsched.log.events.fold import ObjectState
from volsched.log.reads.as_of import look_at_head
from volsched.questions.audit.answers import Answer
from volsched.questions.context import QuestionContext
from volsched.questions.history.volume_history import NEVER_BOUND, claims_of
from volsched.questions.parameters import MOST, WindowParameters
from volsched.questions.refusals import UnknownError

CLEAN = "clean"


def handovers(context: QuestionContext, parameters: WindowParameters) -> Answer:
    """Volume by volume, in the order of their names; read on from the last volume of a page."""
    items: list[dict[str, Any]] = []
    with context.window(parameters) as (connection, within):
        look = look_at_head(connection)
        for volume, state in look.every("volume"):
            if parameters.after is not None and volume <= parameters.after:
                continue
            if len(items) >= parameters.limit:
                return Answer(items=items, after=items[-1]["volume"])
            try:
                served = claims_of(connection, volume, within, after=None, limit=MOST).items
            except UnknownError:
                continue
            is_offered = isinstance(state, ObjectState) and status(state.manifest or {}).get("phase") == AVAILABLE
            following = [*served, {"claim": None, "from": None}] if is_offered else served
            items += [
                {
                    "volume": volume,
                    "held": before["claim"],
                    "until": before["until"],
                    "given": after["claim"],
                    "at": after["from"],
                    "data": before["data"],
                }
                for before, after in pairwise(following)
                if before["until"] is not None and before["data"] not in (CLEAN, NEVER_BOUND)
            ]
    return Answer(items=items)
