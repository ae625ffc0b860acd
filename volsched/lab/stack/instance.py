"""One process that is watched over: started, asked for its health, started again when it ends, stopped in time."""

import os
import pwd
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from volsched.lab.stack.identity import MARK, Identity, identify
from volsched.lab.stack.services import Health, StackService, environment, instance_name
from volsched.lab.stack.states import Condition, ServiceState
from volsched.runtime.clock import SECOND

LONG_LIFE = 10 * SECOND
"""A process that lived so long did not fail at its start, and is started again at once."""
HEARTBEAT = "VOLSCHED_HEARTBEAT_FILE"
FIRST_DELAY, MOST_DELAY = SECOND // 2, 30 * SECOND


def back_off(short_lives: int) -> int:
    """How long to wait after so many short lives in a row. The first is forgiven: somebody may have ended it."""
    return 0 if short_lives < 2 else min(FIRST_DELAY << min(short_lives - 2, 10), MOST_DELAY)


@dataclass(slots=True)
class Instance:
    directory: Path
    service: StackService
    number: int
    condition: Condition = Condition.WAITING
    identity: Identity | None = None
    restarts: int = 0
    exit_code: int | None = None
    told: str = ""
    retry_at: int = 0
    _process: "subprocess.Popen[bytes] | None" = None
    _started_at: int = 0
    _short_lives: int = 0
    _kill_at: int | None = None
    _check: "subprocess.Popen[bytes] | None" = None
    _check_at: int = 0
    _check_ends: int = 0
    _failures: int = 0
    _environment: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return instance_name(self.service, self.number)

    @property
    def log(self) -> Path:
        return self.directory / "logs" / f"{self.name}.log"

    @property
    def alive(self) -> bool:
        return self._process is not None

    @property
    def seen(self) -> ServiceState:
        return ServiceState(
            name=self.name,
            service=self.service.name,
            condition=self.condition,
            process=self.identity,
            restarts=self.restarts,
            exit_code=self.exit_code,
            health=self.told,
        )

    def start(self, service: StackService, now: int, *, count: int, path: tuple[str, ...]) -> None:
        """`service` is what it is by now: an upgrade changes it between two lives."""
        self.service = service
        self._environment = environment(service, number=self.number, count=count, path=path)
        self._environment[MARK] = str(self.directory)
        if HEARTBEAT in self._environment:
            # Of its life before; the health check would take it for a sign of this one.
            Path(self._environment[HEARTBEAT]).unlink(missing_ok=True)
        try:
            with self.log.open("ab") as log:
                self._process = self._spawn(service.command, log)
        except OSError as error:
            with self.log.open("a") as log_text:
                log_text.write(f"{service.command[0]}: cannot be started: {error.strerror}\n")
            self._ended(now, 127)
            return
        self.identity = identify(self._process.pid)
        self._started_at, self._kill_at, self._failures = now, None, 0
        self._check_at, self.told = now, ""
        self.condition = Condition.STARTING if service.health or service.once else Condition.HEALTHY

    def step(self, now: int) -> int:
        """Notice what has happened to it; 0 where nothing has."""
        before = (self.condition, self.identity, self.told)
        if self._process is not None:
            code = self._process.poll()
            if code is not None:
                self._ended(now, code)
            elif self._kill_at is not None and now >= self._kill_at:
                self._signal(signal.SIGKILL)
            elif self._kill_at is None:
                self._ask_health(now)
        return int((self.condition, self.identity, self.told) != before)

    def stop(self, now: int) -> None:
        """Ask it to end; SIGKILL follows when its grace is over."""
        if self._process is None:
            self.condition = Condition.DONE if self.condition is Condition.DONE else Condition.STOPPED
        elif self._kill_at is None:
            self._kill_at = now + int(self.service.grace * SECOND)
            self.condition = Condition.STOPPING
            self._end_check()
            self._signal(signal.Signals[self.service.stop_signal])
            # One that is frozen would not hear it.
            self._signal(signal.SIGCONT)

    def _ended(self, now: int, code: int) -> None:
        stopping = self._kill_at is not None
        self._process, self.identity, self.exit_code, self._kill_at = None, None, code, None
        self._end_check()
        if stopping:
            self.condition = Condition.STOPPED
            return
        if self.service.once and code == 0:
            self.condition = Condition.DONE
            return
        self._short_lives = 0 if now - self._started_at >= LONG_LIFE else self._short_lives + 1
        self.restarts += 1
        self.retry_at = now + back_off(self._short_lives)
        self.condition = Condition.BACKING_OFF
        self.told = f"ended with {code}"

    def _ask_health(self, now: int) -> None:
        health = self.service.health
        if health is None:
            return
        if self._check is None:
            if now >= self._check_at:
                self._check_at = now + int(health.interval * SECOND)
                self._check_ends = now + int(health.timeout * SECOND)
                with self._said.open("wb") as said:
                    self._check = self._asked(health, said)
            return
        code = self._check.poll()
        if code is None and now < self._check_ends:
            return
        self._end_check()
        if code == 0:
            self.condition, self.told, self._failures = Condition.HEALTHY, "", 0
        else:
            self._failures += 1
            lines = self._said.read_text(errors="replace").strip().splitlines()
            self.told = lines[-1] if lines and code is not None else "no answer in time" if code is None else ""
            if self.condition is Condition.HEALTHY and self._failures >= health.retries:
                self.condition = Condition.UNHEALTHY
        slowly = self.condition is Condition.HEALTHY and self._failures == 0
        self._check_at = now + int((health.interval if slowly else health.start_interval) * SECOND)

    def _asked(self, health: Health, said: IO[bytes]) -> "subprocess.Popen[bytes] | None":
        """None where there is no such command: that says nothing about the service, but people must know."""
        try:
            return self._spawn(health.command, said)
        except (FileNotFoundError, PermissionError) as error:
            self.told = f"{health.command[0]}: cannot be started: {error.strerror}"
            return None

    @property
    def _said(self) -> Path:
        return self.directory / "run" / f"{self.name}.health"

    def _end_check(self) -> None:
        if self._check is not None:
            if self._check.poll() is None:
                os.killpg(self._check.pid, signal.SIGKILL)
            self._check.wait()
            self._check = None

    def _spawn(self, command: tuple[str, ...], output: IO[bytes]) -> "subprocess.Popen[bytes]":
        """In a session of its own: a Ctrl-C at the terminal is for the supervisor, which ends all in order."""
        return subprocess.Popen(
            command,
            env=self._environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **_as_user(self.service.user),
        )

    def _signal(self, number: signal.Signals) -> None:
        # Our own child, not yet waited for: its pid cannot have been given to anybody else.
        assert self._process is not None
        if number is signal.SIGKILL:
            os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)


def _as_user(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    entry = pwd.getpwnam(name)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
