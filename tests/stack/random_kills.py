"""`make drills`: kill -9 of a random process of a stack every few seconds under load, and what came of it.

A victim is any process but the supervisor, without which nobody would start the others again: a service with all
that belongs to it, or one of its children alone (a pool process or the beat of a worker, a backend of PostgreSQL).
`--seed` fixes the order of victims and pauses, not what each of them is doing when it dies.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from volsched.lab.stack.bench import scratch_stack
from volsched.lab.stack.handle import Stack
from volsched.lab.stack.identity import process_of
from volsched.lab.stack.load import LOOK_SECONDS, Load, LoadClient, outcome, prepare_cluster
from volsched.log.database import open_database
from volsched.log.integrity.verify import verify
from volsched.runtime.clock import SECOND, system_clock

PODS_PER_SECOND = 10
CLAIMS = (1, 2)
"""Of each pod, in turn: with two, a binding can be torn in the middle."""
PAUSE_SECONDS = (1.0, 8.0)
READY_SECONDS = 180.0


def kill_one(stack: Stack, chance: random.Random) -> str | None:
    """Kill a process; whose it was, or None where it was gone already."""
    seen = stack.seen()
    living = [it for it in seen.instances if it.process is not None] if seen else []
    if not living:
        return None
    chosen = chance.choice(living)
    leader = process_of(chosen.process) if chosen.process else None
    if leader is None:
        return None
    try:
        victim = chance.choice([leader, *sorted(leader.children(recursive=True), key=lambda it: it.pid)])
        if victim != leader:
            # Looks at the start time itself: another process that has got its pid is left alone.
            victim.kill()
            return f"a child of {chosen.service}"
    except psutil.NoSuchProcess:
        return None
    return chosen.service if stack.kill(chosen.name) else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance, killed = random.Random(given.seed), Counter[str]()
    most = int(given.minutes * 60 * PODS_PER_SECOND) + 1
    with tempfile.TemporaryDirectory(prefix="volsched-") as directory:
        Path(directory).chmod(0o711)
        with scratch_stack(Path(directory) / "stack", workers=2) as stack:
            client = LoadClient(stack.urls["api"])
            prepare_cluster(client, nodes=10, volumes=most * max(CLAIMS))
            load = Load(client, PODS_PER_SECOND, most=most, claims=CLAIMS)
            began = system_clock()
            end, next_kill = began + int(given.minutes * 60 * SECOND), began
            while (now := system_clock()) < end:
                if now >= next_kill:
                    next_kill = now + int(chance.uniform(*PAUSE_SECONDS) * SECOND)
                    victim = kill_one(stack, chance)
                    killed.update([victim] if victim else [])
                if not load.step(now):
                    time.sleep(LOOK_SECONDS)
            seconds = (system_clock() - began) / SECOND
            stack.wait_ready(seconds=READY_SECONDS)
            seen = stack.seen()
            restarts = sum(it.restarts for it in seen.instances) if seen else 0
            database = open_database(stack.database_url)
            found = outcome(database, load, seconds=seconds, restarts={})
            whole = verify(database).ok
            client.close()
            database.close()
    print(f"{found.pods} pods in {found.seconds:.0f} s: {found.pods_per_second:.0f} a second; seed {given.seed}")
    print(f"{killed.total()} kills: " + ", ".join(f"{name} {times}" for name, times in killed.most_common()))
    print(f"services were started again {restarts} times")
    print(f"{found.lost} lost, {found.doubled} doubled, {len(found.broken)} invariants broken")
    for it in found.broken:
        print(f"  {it}")
    print(f"{found.retries} requests were sent again; the log {'verifies' if whole else 'DOES NOT VERIFY'}")
    return int(bool(found.lost or found.doubled or found.broken or not whole))


if __name__ == "__main__":
    sys.exit(main())
