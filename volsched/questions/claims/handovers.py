"""Volumes that were offered again with contents that may not have been erased: data can leak."""

from itertools import pairwise
from typing import Any

from volsched.kube.manifest import status
from volsched.kube.storage import AVAILABLE
from volsched.log.events.fold import ObjectState
from volsched.log.reads.as_of import view_at_head
from volsched.questions.audit.answers import Answer
from volsched.questions.context import QuestionContext
from volsched.questions.history.volume_history import CLEAN_DATA, NEVER_BOUND, claims_of
from volsched.questions.parameters import MOST, WindowParameters
from volsched.questions.refusals import UnknownError


def handovers(context: QuestionContext, parameters: WindowParameters) -> Answer:
    """In the order of volumes' names; the next page begins after the last volume of this one."""
    items: list[dict[str, Any]] = []
    with context.window(parameters) as (connection, within):
        view = view_at_head(connection)
        for volume, state in view.every("volume"):
            if parameters.after is not None and volume <= parameters.after:
                continue
            if len(items) >= parameters.limit:
                return Answer(items=items, after=items[-1]["volume"])
            try:
                tenures = claims_of(connection, volume, within, after=None, limit=MOST).items
            except UnknownError:
                continue
            is_offered = isinstance(state, ObjectState) and status(state.manifest or {}).get("phase") == AVAILABLE
            holders = [*tenures, {"claim": None, "from": None}] if is_offered else tenures
            items += [
                {
                    "volume": volume,
                    "held": before["claim"],
                    "until": before["until"],
                    "given": after["claim"],
                    "at": after["from"],
                    "data": before["data"],
                }
                for before, after in pairwise(holders)
                if before["until"] is not None and before["data"] not in (CLEAN_DATA, NEVER_BOUND)
            ]
    return Answer(items=items)
