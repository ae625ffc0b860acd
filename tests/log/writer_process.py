"""A process that writes and tells what was acknowledged, for tests that run several or kill one.

Usage: python -m tests.log.writer_process URL NAME COUNT BATCH
Creates volumes NAME-0, NAME-1, … through a writer and prints each acknowledged position as soon as it is durable.
"""

import sys

from tests.support.store_samples import create_volume
from volsched.log.database import open_database
from volsched.runtime.clock import system_clock
from volsched.runtime.runner import running
from volsched.runtime.writer import Writer


def main(url: str, name: str, count: int, batch: int) -> None:
    database = open_database(url)
    with running(Writer(database, max_batch=batch), clock=system_clock) as writer:
        for start in range(0, count, batch):
            futures = [
                (f"{name}-{index}", writer.submit(create_volume(f"{name}-{index}")))
                for index in range(start, min(start + batch, count))
            ]
            for volume, future in futures:
                print(future.result().position, volume, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
