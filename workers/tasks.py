"""The tasks. Each reads the database, and its result depends on that alone, not on who rang how often."""

import logging
from collections.abc import Callable

from volsched.binding.rules.foreign_notice import TELL
from volsched.binding.rules.saga import ANNOTATE, BIND_POD, PREBIND, RELEASE
from volsched.binding.wakeup import CANARY, SWEEP, WAIT_FOR_BOUND, wake_up_name
from volsched.log.errors import StoreError
from volsched.log.leases import acquire
from volsched.runtime.clock import MILLISECOND, system_clock
from workers.app import OWN_CANARY, Hands, app, hands, new_id

ROUNDS = 20
"""Batches carried out for one wake-up. Then other queues get their turn: there are fewer processes than queues."""
TURN = 800 * MILLISECOND
"""Every worker has a beat, and a look at waiting bindings reads hundreds of them: this often is enough."""

_logger = logging.getLogger(__name__)


@app.task(name=wake_up_name(PREBIND))
def prebind() -> None:
    """Point volumes at their claims."""
    _look(lambda it: _drain(it, PREBIND))


@app.task(name=wake_up_name(ANNOTATE))
def annotate() -> None:
    """Tell provisioners the selected node."""
    _look(lambda it: _drain(it, ANNOTATE))


@app.task(name=wake_up_name(RELEASE))
def release() -> None:
    """Undo the legs of bindings that failed."""
    _look(lambda it: _drain(it, RELEASE))


@app.task(name=wake_up_name(BIND_POD))
def bind_pod() -> None:
    """Bind pods whose legs are all bound."""
    _look(lambda it: _drain(it, BIND_POD))


@app.task(name=wake_up_name(TELL))
def tell() -> None:
    """Tell pods and claims of a foreign cluster."""
    _look(lambda it: _drain(it, TELL))


@app.task(name=wake_up_name(WAIT_FOR_BOUND))
def wait_for_bound() -> None:
    """Look at the waiting bindings: they occupy no worker, and their deadlines are rows."""
    _look(_wait)


@app.task(name=wake_up_name(SWEEP))
def sweep() -> None:
    """Work without a wake-up, and once per worker its recovery."""
    _look(_sweep)


@app.task(name=wake_up_name(CANARY))
def canary() -> None:
    """Proof that wake-ups are carried out: the lease of this name then runs until the time of the last one."""
    _look(lambda it: acquire(it.database, name=CANARY, holder=CANARY, now=system_clock(), ttl=0))


@app.task(name=wake_up_name(OWN_CANARY))
def canary_of_this_worker() -> None:
    """Rung by the health check beside this worker, which reads the file: this process has reached the store."""
    _look(lambda it: it.answer_health(system_clock()))


def _look(look: Callable[[Hands], object]) -> None:
    try:
        look(hands())
    except StoreError as error:
        # One line reports the fault, and the next sweep retries: no traceback every second.
        _logger.error("%s", error)


def _drain(mine: Hands, queue: str) -> None:
    rounds = 0
    while rounds < ROUNDS and mine.executor.step(queue, system_clock()):
        rounds += 1
    if rounds > 0:
        # For the rest of this queue, and for follow-up work. A task that found nothing does not ring: it would
        # loop on work that another process holds.
        mine.bell()


def _wait(mine: Hands) -> None:
    now = system_clock()
    turn = acquire(mine.database, name=WAIT_FOR_BOUND, holder=new_id(), now=now, ttl=TURN)
    if turn is not None and mine.sweep.look_at_waiting(now):
        mine.bell()


def _sweep(mine: Hands) -> None:
    mine.sweep.end_parked(system_clock())
    mine.bell()
    # Last, because it takes a while where thousands are in flight; its effects are rung for a second later.
    mine.recover(system_clock())
