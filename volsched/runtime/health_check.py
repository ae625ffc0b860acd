"""The health check of a container, `python -m volsched.runtime.health_check SERVICE`; exit status 0: healthy.

It runs every few seconds in every container, so it imports as little as possible.

| service | is healthy where |
|---|---|
| api | `/readyz` says ok: it has read the log, and the store answers |
| alive | `/livez` says ok: it has no fault that a restart would cure |
| scheduler, controller | its loop has ended a step without an error in the last half minute (it touches a file) |
| worker | a wake-up for this worker alone, sent now through Redis, was carried out and has read the store |
"""

import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from volsched.runtime.clock import SECOND

OLDEST_BEAT_SECONDS = 30.0
CANARY_SECONDS = 12.0
RING_SECONDS = 1.0
REQUEST_SECONDS = 5.0
LOOK_SECONDS = 0.02
GRAIN_SECONDS = 0.01
"""By this much a file's time may precede a clock that was read before it."""
API_URL = "VOLSCHED_HEALTH_URL"
DEFAULT_API_URL = "http://127.0.0.1:8700"


def api(place: str = "/readyz") -> str | None:
    """None if the API is healthy, else the fault. It is our own server, so its certificate is not checked."""
    url = os.environ.get(API_URL, DEFAULT_API_URL)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"{url}{place}", timeout=REQUEST_SECONDS, context=trusting) as answer:
            return None if answer.status == 200 else f"{place} answers {answer.status}"
    except urllib.error.HTTPError as error:
        return f"{place} answers {error.code}: {error.read(1000).decode(errors='replace')}"
    except OSError as error:
        return f"{url} does not answer: {error}"


def loop() -> str | None:
    beat = _beat()
    if beat is None:
        return "no step has ended yet"
    age = time.time() - beat
    return None if age <= OLDEST_BEAT_SECONDS else f"the last step that went well ended {age:.0f} s ago"


def worker() -> str | None:
    from volsched.binding.wakeup import RedisBell, own_canary
    from volsched.log.database import open_database
    from volsched.runtime.clock import system_clock
    from volsched.runtime.settings import read_settings

    settings = read_settings()
    bell = RedisBell(settings.redis_url or "", open_database(settings.database_url), system_clock)
    asked_at = time.time()
    rung = 0.0
    with closing(bell):
        while time.time() < asked_at + CANARY_SECONDS:
            # Repeated: a worker that is still starting finds an expired message.
            if time.time() >= rung + RING_SECONDS:
                bell.ring(own_canary(settings.instance))
                rung = time.time()
            beat = _beat()
            if beat is not None and beat >= asked_at - GRAIN_SECONDS:
                return None
            time.sleep(LOOK_SECONDS)
    return f"a wake-up was not carried out within {CANARY_SECONDS:g} s"


def _beat() -> float | None:
    """When the process beside us last touched its file."""
    with suppress(FileNotFoundError):
        return Path(os.environ["VOLSCHED_HEARTBEAT_FILE"]).stat().st_mtime
    return None


CHECKS: dict[str, Callable[[], str | None]] = {
    "api": api,
    "alive": lambda: api("/livez"),
    "scheduler": loop,
    "controller": loop,
    "worker": worker,
}


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in CHECKS:
        print(f"give one of: {', '.join(CHECKS)}")
        return 2
    wrong = CHECKS[arguments[0]]()
    print(wrong or "healthy")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))


# A process's heartbeat for its health check: a file that is touched when a step has ended without an error.
#
# A blocked thread, or a loop whose every step fails, does not touch it. Rejected: a row in the store, because
# hundreds of idle processes would write there continuously.

EVERY = 1 * SECOND


@dataclass(slots=True)
class Heartbeat:
    file: Path | None
    """The heartbeat file; None: no health check reads one."""
    _next: int = 0

    def beat(self, now: int) -> None:
        """Touch the file, at most once a second."""
        if self.file is not None and now >= self._next:
            self._next = now + EVERY
            # On a full disk the health check fails; the process itself continues its work.
            with suppress(OSError):
                self.file.touch()

    def around(self, step: Callable[[int], int]) -> Callable[[int], int]:
        """The step, followed by a beat unless it raised. The file of an earlier process is removed."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)

        def beating(now: int) -> int:
            progress = step(now)
            self.beat(now)
            return progress

        return beating
