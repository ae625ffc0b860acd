"""What was told of an object lately: the tables tell at every look what still holds."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from volsched.pv_controller.rules import Notice
from volsched.pv_controller.rules.reasons import PROVISIONING_FAILED
from volsched.runtime.clock import SECOND

TELL_AGAIN = 300 * SECOND


@dataclass(slots=True)
class Said:
    """A notice is written down once, and again after a while."""

    _at: dict[str, dict[tuple[str, str], int]] = field(default_factory=dict)
    """By the object's uid: what was told of it, and when."""

    def is_news(self, notice: Notice, now: int) -> bool:
        """Whether the notice is to be written; from then on it is known."""
        told, what = self._at.setdefault(notice.uid, {}), _what(notice)
        last = told.get(what)
        if last is None and notice.patience_seconds:
            told[what] = now - TELL_AGAIN + notice.patience_seconds * SECOND
            return False
        if last is not None and now - last < TELL_AGAIN:
            return False
        if notice.reason == PROVISIONING_FAILED:
            # Whoever asks why a binding failed takes the last one for its reason, so an earlier one is said again.
            for other in [it for it in told if it[0] == PROVISIONING_FAILED]:
                del told[other]
        told[what] = now
        return True

    def take_back(self, notices: Iterable[Notice]) -> None:
        """They were not written after all."""
        for notice in notices:
            self._at.get(notice.uid, {}).pop(_what(notice), None)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._at.pop(uid, None)


def _what(notice: Notice) -> tuple[str, str]:
    return notice.reason, notice.message
