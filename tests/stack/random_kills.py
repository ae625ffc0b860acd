"""`make drills`: kill -9 of a random process of a stack every few seconds under load, and what came of it.

A victim is any process but the supervisor, without which nobody would start the others again: a service with all
that belongs to it, or one of its children alone (a pool process or the beat of a worker, a backend of PostgreSQL).
Every service has its turn before one has its next, so that none is spared by chance. `--seed` fixes the order of
victims and pauses, not what each of them is doing when it dies.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from volsched.lab.stack.handle import Stack
from volsched.lab.stack.load import LOOK_SECONDS, Load, LoadClient, outcome, prepare_cluster, scratch_stack
from volsched.lab.stack.states import process_of
from volsched.log.database import open_database
from volsched.log.integrity.verify import verify
from volsched.runtime.clock import SECOND, system_clock

PODS_PER_SECOND = 10
CLAIMS = (1, 2)
"""Of each pod, in turn: with two, a binding can be torn in the middle."""
PAUSE_SECONDS = (1.0, 8.0)
READY_SECONDS = 300.0


@dataclass(slots=True)
class Killer:
    stack: Stack
    chance: random.Random
    turns: list[str] = field(default_factory=list)
    """Instances that are still to come in this round."""
    kills: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """(Service, whether only a child of it) → how often."""

    def kill_one(self) -> None:
        """Of the instance whose turn it is; one that is down already has had it."""
        seen = self.stack.published()
        living = {it.name: it for it in seen.instances if it.process is not None} if seen else {}
        if not self.turns:
            self.turns = sorted(living)
            self.chance.shuffle(self.turns)
        chosen = living.get(self.turns.pop()) if self.turns else None
        leader = process_of(chosen.process) if chosen and chosen.process else None
        if chosen is None or leader is None:
            return
        try:
            victim = self.chance.choice([leader, *sorted(leader.children(recursive=True), key=lambda it: it.pid)])
            if victim != leader:
                # Looks at the start time itself: another process that has got its pid is left alone.
                victim.kill()
                self.kills[chosen.service, True] += 1
                return
        except psutil.NoSuchProcess:
            return
        self.kills[chosen.service, False] += bool(self.stack.kill(chosen.name))

    def table(self) -> str:
        lines = [f"{'service':<12}{'killed':>8}{'a child of it':>16}"]
        for name in sorted({service for service, _ in self.kills}):
            lines.append(f"{name:<12}{self.kills[name, False]:>8}{self.kills[name, True]:>16}")
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    most = int(given.minutes * 60 * PODS_PER_SECOND) + 1
    with tempfile.TemporaryDirectory(prefix="volsched-") as directory:
        Path(directory).chmod(0o711)
        with scratch_stack(Path(directory) / "stack", workers=2, ready_seconds=READY_SECONDS) as stack:
            client = LoadClient(stack.urls["api"])
            prepare_cluster(client, nodes=10, volumes=most * max(CLAIMS))
            load, killer = Load(client, PODS_PER_SECOND, most=most, claims=CLAIMS), Killer(stack, chance)
            began = system_clock()
            end, next_kill = began + int(given.minutes * 60 * SECOND), began
            while (now := system_clock()) < end:
                if now >= next_kill:
                    next_kill = now + int(chance.uniform(*PAUSE_SECONDS) * SECOND)
                    killer.kill_one()
                if not load.step(now):
                    # The pace of the load: nothing is due before, and nobody is waited for.
                    time.sleep(LOOK_SECONDS)
            seconds = (system_clock() - began) / SECOND
            stack.wait_ready(seconds=READY_SECONDS)
            seen = stack.published()
            restarts = sum(it.restarts for it in seen.instances) if seen else 0
            database = open_database(stack.database_url)
            found = outcome(database, load, seconds=seconds, restarts={})
            whole = verify(database).ok
            client.close()
            database.close()
    print(f"{found.pods} pods in {found.seconds:.0f} s: {found.pods_per_second:.0f} a second; seed {given.seed}")
    print(f"{killer.kills.total()} kills")
    print(killer.table())
    print(f"services were started again {restarts} times")
    print(f"{found.lost} lost, {found.doubled} doubled, {len(found.broken)} invariants broken")
    for it in found.broken:
        print(f"  {it}")
    print(f"{found.retries} requests were sent again; the log {'verifies' if whole else 'DOES NOT VERIFY'}")
    if not killer.kills["controller", False]:
        print("the controller was never killed: this shows nothing of it; let it run for longer")
        return 1
    return int(bool(found.lost or found.doubled or found.broken or not whole))


if __name__ == "__main__":
    sys.exit(main())
