from volsched.runtime.clock import MOST_SECONDS, Patience


class Ticking:
    """A clock that a test moves."""

    time = 0.0

    def __call__(self) -> float:
        return self.time


def looks(patience: Patience, clock: Ticking, progress: list[object], *, pause: float = 0.1) -> list[bool]:
    answers = []
    for it in progress:
        clock.time += pause
        answers.append(patience.is_over(it))
    return answers


def test_it_ends_when_nothing_has_moved_for_so_long() -> None:
    patience = Patience(0.95, clock := Ticking())
    assert looks(patience, clock, [None] * 11) == [False] * 9 + [True] * 2


def test_every_change_begins_it_anew() -> None:
    patience = Patience(0.95, clock := Ticking())
    assert looks(patience, clock, [*range(100)]) == [False] * 100
    assert looks(patience, clock, [99] * 10) == [False] * 9 + [True]


def test_what_a_busy_machine_takes_does_not_count() -> None:
    patience = Patience(2 * MOST_SECONDS, clock := Ticking())
    assert looks(patience, clock, [None] * 2, pause=3_600) == [False, True]
