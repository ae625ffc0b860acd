"""The same words on a store and on a server."""

from dataclasses import dataclass

from tests.cli.conftest import Ran, Run
from tests.support.serving import Served
from tests.support.settled_server import settled


@dataclass(frozen=True)
class TwoWays:
    """A store that is opened, and a server on it or on a copy of it: both are to say the same."""

    db: str
    api: Served
    run: Run

    def here(self, *words: str, stdin: bytes | None = None) -> Ran:
        return self.run(*words, "--db", self.db, stdin=stdin)

    def there(self, *words: str, stdin: bytes | None = None) -> Ran:
        return self.run("--server", self.api.url, *words, stdin=stdin)

    def same(self, *words: str, stdin: bytes | None = None) -> Ran:
        here, there = self.here(*words, stdin=stdin), self.there(*words, stdin=stdin)
        assert (there.code, settled(there.out)) == (here.code, settled(here.out)), there.err
        return there
