"""What the index decides, and what the rules do."""

from volsched.scheduling.rules.cycle import Attempt


def outcome(made: Attempt) -> object:
    """What a scheduler acts on and a user reads."""
    chosen = made.chosen
    if chosen is None:
        return made.status, made.rejectors, dict(made.refused), dict(made.examples)
    answer, scores = chosen.answer, dict(chosen.scores)
    return made.status, chosen.node, chosen.score, scores, chosen.status, answer.bindings, answer.provisions
