"""The worker that the demo kills: it carries effects out, one at a time, until a fault ends it.

Usage: python -m volsched.lab.demo.worker URL
"""

import os
import sys
from uuid import uuid4

from volsched.binding.executor import QUEUES, Executor
from volsched.lab.demo.stage import new_id
from volsched.log.store import open_store
from volsched.runtime.clock import SECOND, system_clock
from volsched.runtime.fault_points import arm_from
from volsched.runtime.system import local_cluster

LEASE_SECONDS = 2
"""Short, so that the demo does not wait long for what a dead worker held."""

if __name__ == "__main__":
    arm_from(os.environ)
    database = open_store(sys.argv[1])
    cluster = local_cluster(database, clock=system_clock, new_uid=lambda: str(uuid4()))
    worker = Executor(database, cluster, f"worker/{new_id()}", lease=LEASE_SECONDS * SECOND, batch=1)
    # It ends when no work is left, so that a missing fault is noticed.
    while any(worker.step(queue, system_clock()) for queue in QUEUES):
        pass
