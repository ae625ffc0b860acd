"""`make rolling`: every service restarted under a load of 60 pods a second, durable, and what came of it."""

import sys
import tempfile
from pathlib import Path

from volsched.lab.stack.load import Load, LoadClient, prepare_cluster, restart_under_load, scratch_stack
from volsched.log.database import open_database
from volsched.log.integrity.verify import verify
from volsched.runtime.clock import system_clock

PODS_PER_SECOND = 60
VOLUMES = 4_000
ROUND = ("worker", "scheduler", "controller", "api", "redis", "postgres")


def main(rounds: int) -> int:
    with tempfile.TemporaryDirectory(prefix="volsched-") as directory:
        Path(directory).chmod(0o711)
        with scratch_stack(Path(directory) / "stack", workers=2) as stack:
            database, client = open_database(stack.database_url), LoadClient(stack.urls["api"])
            prepare_cluster(client, nodes=10, volumes=VOLUMES)
            load = Load(client, PODS_PER_SECOND, most=VOLUMES)
            outcome = restart_under_load(stack, database, load, ROUND * rounds, clock=system_clock, least=500)
            whole = verify(database).ok
            client.close()
            database.close()
    print(f"{outcome.pods} pods in {outcome.seconds:.1f} s: {outcome.pods_per_second:.0f} a second")
    for name, seconds in outcome.restarts.items():
        print(f"  {name} restarted, healthy again after {seconds:.1f} s")
    print(f"{outcome.lost} lost, {outcome.doubled} doubled, {len(outcome.broken)} invariants broken")
    print(f"{outcome.retries} requests were sent again; the log {'verifies' if whole else 'DOES NOT VERIFY'}")
    return int(bool(outcome.lost or outcome.doubled or outcome.broken or not whole))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
