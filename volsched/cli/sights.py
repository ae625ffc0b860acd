"""What `explain` and `simulate` look at: a store as it is now, manifests, or manifests laid over a store."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from volsched.cli.inputs import load_files
from volsched.cli.stores import opened
from volsched.core.profile import Profile
from volsched.engine.scheduling.picture import Picture
from volsched.engine.world import World
from volsched.index import Index
from volsched.insight.hypothetical import index_of, lay_over
from volsched.store.database import Database

OptionalFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE|DIR|-",
        help="Manifests or a dump of a cluster, looked at alone; with --db they are laid over the store.",
    ),
]


@dataclass(frozen=True, slots=True)
class Sight:
    """Objects as they are, in memory: whatever is tried on them, the store is not touched."""

    index: Index
    database: Database | None = None
    picture: Picture | None = None

    @property
    def named(self) -> str:
        return "the manifests" if self.database is None else "the store"


@contextmanager
def sight(db: str | None, files: list[str] | None, *, profile: Profile) -> Iterator[Sight]:
    """Manifests alone, unless a store is named as well; without manifests the store."""
    loaded = [entry.value for entry in load_files(files)] if files else []
    if files and db is None:
        yield Sight(index_of(loaded, profile=profile))
        return
    with opened(db) as database:
        world = World(database)
        picture = Picture(world, index=Index(profile=profile))
        picture.update(world.catch_up())
        lay_over(picture.index, loaded)
        yield Sight(picture.index, database, picture)
