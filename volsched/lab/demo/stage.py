"""The stage of the demo: a store, who works on it, and what is there to be seen.

A scene tells lines and tables, and checks its own outcome: what it says is what the store says.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from volsched.kube.manifest_reader import load_manifests
from volsched.lab.demo.objects import Manifest
from volsched.log.database import Database
from volsched.log.events.fold import BindingState
from volsched.log.reads.as_of import Now
from volsched.log.reads.tail import read_head
from volsched.objects.submission import Submitter, Verb
from volsched.provisioning.simulated import Simulated
from volsched.questions.get.documents import as_manifest
from volsched.runtime.clock import SECOND, system_clock
from volsched.runtime.fault_points import DRILL_FLAG, FAULT
from volsched.runtime.runner import run_until_idle
from volsched.runtime.system import System, embedded

SHORT_ID = 12
PATIENCE_SECONDS = 120.0
"""For one scene: far more than it takes, and then the demo says that it failed."""


class SceneError(Exception):
    """A scene did not come to what it says."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A table."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


Told = str | Rows


@dataclass(frozen=True, slots=True)
class DemoScene:
    title: str
    play: Callable[["Stage"], Iterator[Told]]


@dataclass(frozen=True, slots=True)
class Stage:
    url: str
    database: Database

    def apply(self, manifests: Sequence[Manifest], *, actor: str = "demo", reason: str | None = None) -> None:
        """As `volsched apply` does it."""
        text = "\n".join(map(json.dumps, manifests)).encode()
        giver = Submitter(database=self.database, clock=system_clock, actor=actor, reason=reason)
        for _, outcome in giver.submit(load_manifests(text, source="demo"), Verb.APPLY):
            if isinstance(outcome, Exception):
                raise SceneError(f"an object was refused: {outcome}")

    @contextmanager
    def system(self) -> Iterator[System]:
        """Everything that works on the store, as a process that has just started would have it.

        The user's settings do not count here: the story must not depend on them.
        """
        system = embedded(
            self.database,
            owner=new_id(),
            clock=system_clock,
            new_id=new_id,
            provisioners=(Simulated(),),
        )
        try:
            yield system
        finally:
            system.close()

    def settle(self, system: System) -> float:
        """Let it work until nothing moves; how many seconds that took."""
        begun = system_clock()
        check(
            run_until_idle(system, clock=system_clock, timeout=PATIENCE_SECONDS),
            f"something still moves after {PATIENCE_SECONDS:g} s",
        )
        return (system_clock() - begun) / SECOND

    def run(self) -> float:
        with self.system() as system:
            return self.settle(system)

    def run_worker(self, *, fault: str) -> int:
        """A worker in a process of its own, with a fault armed; answers its exit code, negative for a signal."""
        command = [sys.executable, "-m", "volsched.lab.demo.worker", self.url]
        environment = {**os.environ, DRILL_FLAG: "1", FAULT: fault}
        try:
            return subprocess.run(command, env=environment, timeout=PATIENCE_SECONDS, check=False).returncode
        except subprocess.TimeoutExpired:
            raise SceneError(f"the worker was still alive after {PATIENCE_SECONDS:g} s") from None

    # --- what is there ------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        with self.database.read() as connection:
            return read_head(connection).position

    def objects(self, noun: str) -> Iterable[Manifest]:
        with self._look() as look:
            return [as_manifest(noun, key, state) for key, state in look.every(noun)]

    def get(self, noun: str, key: str) -> Manifest:
        with self._look() as look:
            found = look.one(noun, key)
        if found is None:
            raise SceneError(f'there is no {noun} "{key}"')
        return as_manifest(noun, key, found)

    def node_of(self, pod: str) -> str | None:
        node: str | None = self.get("pod", pod)["spec"].get("nodeName")
        return node

    def bindings_of(self, pod: str) -> list[tuple[str, BindingState]]:
        """The oldest first."""
        with self._look() as look:
            return look.bindings_of("pod", pod)

    def last_binding(self, pod: str, *, of: int = 1) -> tuple[str, BindingState]:
        """Its newest binding; `of` says how many there must have been by now."""
        bindings = self.bindings_of(pod)
        check(len(bindings) == of, f"pod {pod} has had {len(bindings)} bindings, not {of}")
        return bindings[-1]

    @contextmanager
    def _look(self) -> Iterator[Now]:
        with self.database.read() as connection:
            yield Now(connection, read_head(connection).position)


def check(holds: bool, otherwise: str) -> None:
    """The scene goes on only if what it says is so."""
    if not holds:
        raise SceneError(otherwise)


def new_id() -> str:
    return uuid4().hex[:SHORT_ID]
