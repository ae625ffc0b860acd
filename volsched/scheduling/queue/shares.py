"""Several schedulers on one store: each begins with pods of its own share, so that they seldom decide the same.

A share is an order, not a fence: a scheduler that has done its own takes the others', because theirs may be dead.
And it does not put them off for ever: another's pod takes its turn as if it had come a little later.

The same with nodes that are equally good: their names are taken as a ring, and each scheduler begins in another
part of it, so that they do not all plan with the same volumes. Within its part every pod begins at a place of its
own, so that what is wrong with one node meets few of them. Without a pod's name, at the smallest of the part.
"""

from dataclasses import dataclass
from zlib import crc32

from volsched.scheduling.queue.entry import SECOND

OTHERS_LATER = 30 * SECOND
"""Longer than whoever has the share needs for it, and no longer than its pods should wait if not."""
PLACES = 64


@dataclass(frozen=True, slots=True)
class Share:
    """The `number`th of `of` schedulers, counted from 0; people count from 1 and write 1/4."""

    number: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise ValueError(f"scheduler {self.number} of {self.of}: the number must be from 0 to {self.of - 1}")

    def holds(self, uid: str) -> bool:
        return self.of == 1 or crc32(uid.encode()) % self.of == self.number

    def turn(self, uid: str, since: int) -> int:
        """When the pod's turn comes, among those of its priority."""
        return since if self.holds(uid) else since + OTHERS_LATER

    def first_of(self, count: int, pod: str) -> int:
        """The place, among so many names in order, at which ties of the pod (namespace/name) are begun with.

        One of `PLACES` in the part: whoever looks at thousands of nodes may remember what lies behind each.
        """
        place = crc32(pod.encode()) % PLACES if pod else 0
        return count * (self.number * PLACES + place) // (self.of * PLACES)


def read_share(text: str) -> Share:
    """`2/4` is the second of four. Raises ValueError where it is not like that."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise ValueError(f'"{text}" is no share; write 2/4 for the second of four schedulers')
    return Share(int(number) - 1, int(of))


ALL = Share()
"""Of the only scheduler."""
