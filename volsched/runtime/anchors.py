"""Automatic anchors: the running system signs the position of its log, and sends the anchor elsewhere.

It runs in its own thread: a slow disk, or a command that waits for another machine, delays no loop. Before an
anchor is signed the log must contain the last one, and continue from it without a gap: a rewritten log is not
signed. Several processes may write anchors; an existing one is left unchanged.
"""

import logging
import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from volsched.kube.problems import ConfigurationError
from volsched.log.batch import Head
from volsched.log.database import Database
from volsched.log.errors import StoreError
from volsched.log.integrity.anchors import (
    Anchor,
    KeyFileError,
    PrivateKey,
    anchors_in,
    check_since,
    keep_anchor,
    note_anchor,
    parse_anchor,
    read_private_key,
)
from volsched.log.reads.tail import read_head
from volsched.runtime.clock import Clock
from volsched.runtime.settings import Settings

COMMAND_SECONDS = 60
LONGEST_WORDS = 500
NO_KEY = "VOLSCHED_ANCHOR_KEY_FILE: is not set, and anchors are signed; create a key with: volsched anchor keygen"
_log = logging.getLogger("volsched.anchors")


@dataclass(frozen=True, slots=True)
class AnchorPlan:
    """The directory and command for anchors, and the key that signs them."""

    key: PrivateKey
    directory: Path | None
    command: tuple[str, ...]
    seconds: float


def anchor_plan(settings: Settings) -> AnchorPlan | None:
    """The plan from the settings; None: no anchors. Raises ConfigurationError."""
    if settings.anchor_directory is None and settings.anchor_command is None:
        return None
    if settings.anchor_key_file is None:
        raise ConfigurationError([NO_KEY])
    try:
        command = tuple(shlex.split(settings.anchor_command or ""))
        key = read_private_key(settings.anchor_key_file)
    except KeyFileError as error:
        raise ConfigurationError([f"VOLSCHED_ANCHOR_KEY_FILE: {error}"]) from None
    except ValueError as error:
        raise ConfigurationError([f"VOLSCHED_ANCHOR_COMMAND: {error}"]) from None
    return AnchorPlan(key, settings.anchor_directory, command, settings.anchor_seconds)


@dataclass(slots=True)
class Anchors:
    database: Database
    plan: AnchorPlan
    clock: Clock
    _last: Anchor | None = None
    _stopped: threading.Event = field(default_factory=threading.Event)

    def step(self) -> Anchor | None:
        """Write an anchor of the present log; None if it has not grown since the last one, or on failure."""
        head = Head(0, b"", 0)
        try:
            last = self._newest()
            with self.database.read() as connection:
                head = read_head(connection)
                if head.position == (0 if last is None else last.position):
                    return None
                if last is not None:
                    check_since(connection, last, head)
            anchor = Anchor(head.position, head.hash, head.at).signed(self.plan.key)
            self._keep(anchor)
            self._last = anchor
            note_anchor(self.database, head, now=self.clock(), written=True)
        except Exception as error:
            # No exception may end the thread: the next attempt may succeed, and until then an alert reports it.
            _log.error("no anchor could be written: %s", error)
            self._note_failure(head)
            return None
        return anchor

    def run(self) -> None:
        while not self._stopped.is_set():
            self.step()
            self._stopped.wait(self.plan.seconds)

    def stop(self) -> None:
        self._stopped.set()

    def _newest(self) -> Anchor | None:
        """The last anchor that we wrote, or that existed before we began."""
        if self._last is None and self.plan.directory is not None:
            for path in reversed(anchors_in(self.plan.directory)):
                anchor = parse_anchor(path.read_text())
                if not anchor.is_signed_by(self.plan.key.public):
                    raise StoreError(f"{path} was not signed with our key; keep anchors of another key elsewhere")
                return anchor
        return self._last

    def _keep(self, anchor: Anchor) -> None:
        if self.plan.directory is not None:
            keep_anchor(self.plan.directory, anchor)
        if self.plan.command:
            done = subprocess.run(
                self.plan.command,
                input=anchor.dump(),
                text=True,
                errors="replace",
                capture_output=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
            if done.returncode != 0:
                said = done.stderr.strip()[-LONGEST_WORDS:]
                raise StoreError(f"{self.plan.command[0]} ended with {done.returncode}: {said}")

    def _note_failure(self, head: Head) -> None:
        try:
            note_anchor(self.database, head, now=self.clock(), written=False)
        except StoreError as error:
            _log.error("that could not be noted either: %s", error)


@contextmanager
def anchoring(database: Database, plan: AnchorPlan | None, clock: Clock) -> Iterator[None]:
    """Writes anchors in the background, if there is a plan."""
    if plan is None:
        yield
        return
    anchors = Anchors(database, plan, clock)
    thread = threading.Thread(target=anchors.run, name="volsched-anchors", daemon=True)
    thread.start()
    try:
        yield
    finally:
        anchors.stop()
        thread.join(timeout=1)
