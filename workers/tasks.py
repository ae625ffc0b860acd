"""The Celery tasks. Each reads the database, and its result depends only on that, not on the wake-ups."""

import logging
from collections.abc import Callable

from volsched.binding.rules.effects import ANNOTATE, BIND_POD, PREBIND, RELEASE
from volsched.binding.rules.foreign_notice import TELL
from volsched.binding.wakeup import CANARY, SWEEP, WAIT_FOR_BOUND, wake_up_name
from volsched.log.errors import StoreError
from volsched.log.leases import acquire
from volsched.runtime.clock import MILLISECOND, system_clock
from workers.app import OWN_CANARY, WorkerProcess, app, new_id, worker_process

ROUNDS = 20
"""Maximum number of batches per wake-up; then other queues get their turn, as processes are fewer than queues."""
TURN = 800 * MILLISECOND
"""The shortest interval between two checks of waiting bindings: every worker has a beat, and a check is costly."""

_logger = logging.getLogger(__name__)


@app.task(name=wake_up_name(PREBIND))
def prebind() -> None:
    """Point volumes at their claims."""
    _run(lambda it: _drain(it, PREBIND))


@app.task(name=wake_up_name(ANNOTATE))
def annotate() -> None:
    """Write the selected node for provisioners."""
    _run(lambda it: _drain(it, ANNOTATE))


@app.task(name=wake_up_name(RELEASE))
def release() -> None:
    """Undo the legs of bindings that failed."""
    _run(lambda it: _drain(it, RELEASE))


@app.task(name=wake_up_name(BIND_POD))
def bind_pod() -> None:
    """Bind pods whose legs are all bound."""
    _run(lambda it: _drain(it, BIND_POD))


@app.task(name=wake_up_name(TELL))
def tell() -> None:
    """Write conditions and events of pods and claims of a foreign cluster."""
    _run(lambda it: _drain(it, TELL))


@app.task(name=wake_up_name(WAIT_FOR_BOUND))
def wait_for_bound() -> None:
    """Check the waiting bindings: they occupy no worker, and their deadlines are rows."""
    _run(_wait)


@app.task(name=wake_up_name(SWEEP))
def sweep() -> None:
    """Do work that got no wake-up, and recovery once per worker."""
    _run(_sweep)


@app.task(name=wake_up_name(CANARY))
def canary() -> None:
    """Prove that wake-ups are carried out: the expiry of the lease of this name is the time of the last one."""
    _run(lambda it: acquire(it.database, name=CANARY, holder=CANARY, now=system_clock(), ttl=0))


@app.task(name=wake_up_name(OWN_CANARY))
def canary_of_this_worker() -> None:
    """Answer the health check of this worker, which reads the heartbeat file: this process has read the store."""
    _run(lambda it: it.answer_health(system_clock()))


def _run(act: Callable[[WorkerProcess], object]) -> None:
    try:
        act(worker_process())
    except StoreError as error:
        # One line reports the fault, and the next sweep retries: no traceback every second.
        _logger.error("%s", error)


def _drain(worker: WorkerProcess, queue: str) -> None:
    rounds = 0
    while rounds < ROUNDS and worker.executor.step(queue, system_clock()):
        rounds += 1
    if rounds > 0:
        # For the rest of this queue, and for follow-up work. A task that found no work does not ring: it would
        # loop on work that another process holds.
        worker.bell()


def _wait(worker: WorkerProcess) -> None:
    now = system_clock()
    turn = acquire(worker.database, name=WAIT_FOR_BOUND, holder=new_id(), now=now, ttl=TURN)
    if turn is not None and worker.sweep.examine_waiting(now):
        worker.bell()


def _sweep(worker: WorkerProcess) -> None:
    worker.sweep.end_parked(system_clock())
    worker.bell()
    # Last, because it is slow if thousands of bindings are in flight; the next sweep rings for its effects.
    worker.recover(system_clock())
