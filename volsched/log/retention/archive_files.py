"""The whole history again, from files that are no longer in the store: what a base is proven with."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from sqlalchemy import Connection

from volsched.log import tables
from volsched.log.base import DAMAGED, PLACE, STATES, BaseRow, base_rows, read_sum, sum_of
from volsched.log.batch import Head
from volsched.log.events.envelope import Event
from volsched.log.events.fold import LeaseState, State, TokenState, UnknownState
from volsched.log.integrity.findings import BrokenLogError, Finding
from volsched.log.integrity.replay import Folded, Progress, check_nouns, fold_chunks
from volsched.log.integrity.seals import read_seals
from volsched.log.retention.export import CHUNK, Manifest
from volsched.log.retention.import_files import LogFiles
from volsched.log.snapshots import loaded

NOT_ARCHIVED = "it is not what the archives say"
NOT_SAID = "an archive holds it redacted, and the log says nothing of that"
TOO_SHORT = (
    "the archives end before it and the store begins after position {base}: give the file that is missing too"
)


@dataclass(slots=True)
class Proof:
    """What the archives say of a store's base."""

    folded: Folded = field(default_factory=Folded)
    """What all streams had become there."""
    noted: dict[int, bytes] = field(default_factory=dict)
    """Hashes of the positions that were asked for, as far as they are not behind the base."""
    end: Manifest | None = None
    """Of the last file, which may reach beyond the base: an archive that was interrupted has taken out a part."""
    redacted: dict[int, bytes] = field(default_factory=dict)
    """Seals of events that the files hold redacted, as the files themselves say."""
    sealed: dict[int, bytes] = field(default_factory=dict)
    """The same as the log says it, as far as the files reach."""


def fold_archives(
    files: Sequence[Iterable[str]], *, until: int, noted: Iterable[int] = (), progress: Progress | None = None
) -> Proof:
    """Fold files from the first event there ever was to a position.

    ExportError where they cannot be what was once written, BrokenLogError where they do not reach that far.
    """
    chain, proof = LogFiles(files), Proof()
    events, wanted = chain.events(), sorted(set(noted))

    def before_base() -> Iterator[list[Event]]:
        while chunk := list(islice(events, min(CHUNK, until - proof.folded.head.position))):
            chain.check_genesis()
            first = chunk[0].position
            within = wanted[bisect_left(wanted, first) : bisect_right(wanted, chunk[-1].position)]
            proof.noted |= {position: chunk[position - first].hash for position in within}
            yield chunk

    try:
        fold_chunks(before_base(), proof.folded, check=False, progress=progress)
        check_nouns(proof.folded.states)
    except BrokenLogError as broken:
        raise chain.located(broken) from None
    for _ in events:
        # What lies behind the base is in the store too; here it is only checked to be linked.
        pass
    proof.end = chain.manifests[-1]
    proof.redacted, proof.sealed = chain.redacted, chain.sealed
    if proof.folded.head.position < until:
        raise BrokenLogError(Finding(problem=TOO_SHORT.format(base=until), position=proof.end.last + 1))
    return proof


def check_base(connection: Connection, base: Head, proof: Proof) -> Iterator[Finding]:
    """Whether the base is what the archives lead to: its place in the chain, and the state of every stream."""
    proven = proof.folded
    for column in ("hash", "at"):
        wanted, got = getattr(proven.head, column), getattr(base, column)
        if wanted != got:
            yield Finding(
                problem=NOT_ARCHIVED,
                table=tables.checkpoints.name,
                key=PLACE,
                column=column,
                expected=wanted,
                got=got,
            )
    known = proof.sealed | read_seals(connection)
    for position, seal in proof.redacted.items():
        if known.get(position) != seal:
            yield Finding(problem=NOT_SAID, position=position)
    left = {(stream, state.version): state for stream, state in proven.states.items()}
    marks = []
    for row in base_rows(connection, base.position):
        marks.append(row.mark())
        if not _is(row, left.pop((row.stream, row.version), None)):
            key = f"{row.stream}@{row.version}"
            yield Finding(problem=NOT_ARCHIVED, table=tables.snapshots.name, key=key)
    for stream, version in left:
        problem = "the archives have the state and the base has not"
        yield Finding(problem=problem, table=tables.snapshots.name, key=f"{stream}@{version}")
    if base.position > 0 and read_sum(connection) != sum_of(marks):
        yield Finding(problem=DAMAGED, table=tables.checkpoints.name, key=STATES)


def _is(row: BaseRow, state: State | None) -> bool:
    """Compared as states and not as text: what an earlier program wrote may lack fields that have a default."""
    try:
        stored = loaded(row.stream, row.state)
        if isinstance(stored, UnknownState) and isinstance(state, TokenState | LeaseState):
            # Of tokens and leases, too, an earlier program kept the version alone.
            return stored.version == state.version
        return stored == state
    except (ValueError, TypeError, LookupError, AttributeError):
        return False
