"""The supervisor: order, restarts, health, and that it never touches a process which is not its own."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.patience import HANG_SECONDS, wait_until
from volsched.lab.stack.handle import NotReadyError, Stack, StackError
from volsched.lab.stack.local import check_ports
from volsched.lab.stack.programs import WheelMissingError, make_cluster, postgres_programs
from volsched.lab.stack.run import AlreadyRunningError, alone, is_locked
from volsched.lab.stack.services import (
    Definition,
    DefinitionError,
    Health,
    StackService,
    in_order,
    needing,
    write_definition,
)
from volsched.lab.stack.states import (
    Condition,
    Identity,
    Merger,
    Published,
    ServiceState,
    identify,
    marked,
    process_of,
    publish,
    read_lines,
    send,
)
from volsched.lab.stack.supervisor import MOST_DELAY, back_off, leftovers
from volsched.runtime.clock import SECOND
from volsched.runtime.health_check import Heartbeat

SLEEPS = ("sleep", "1000")


def shell(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    yield Stack(tmp_path)
    Stack(tmp_path).down()


def launched(stack: Stack, *services: StackService) -> Stack:
    write_definition(stack.directory / "stack.json", Definition(services=services))
    stack.launch()
    return stack


def one(stack: Stack, name: str) -> ServiceState:
    (found,) = stack.instances(name)
    return found


def said(stack: Stack) -> list[str]:
    return [f"{it.instance}: {it.text}" for it in read_lines(stack.directory / "logs")]


# --- values ---------------------------------------------------------------------------------------------


def test_services_come_after_those_they_wait_for() -> None:
    web, store, cache = (
        StackService(name="web", command=SLEEPS, after=("store", "cache")),
        StackService(name="store", command=SLEEPS),
        StackService(name="cache", command=SLEEPS, after=("store",)),
    )
    assert [it.name for it in in_order([web, store, cache])] == ["store", "cache", "web"]
    assert needing([web, store, cache], "store") == {"web", "cache"}
    assert needing([web, store, cache], "cache") == {"web"}


@pytest.mark.parametrize(
    ("after", "told"),
    [(("b",), "these services wait for each other: a, b"), (("c",), 'waits for "c", which is not part')],
)
def test_services_that_cannot_be_ordered_are_named(after: tuple[str, ...], told: str) -> None:
    services = [
        StackService(name="a", command=SLEEPS, after=after),
        StackService(name="b", command=SLEEPS, after=("a",)),
    ]
    with pytest.raises(DefinitionError, match=told):
        in_order(services)


@pytest.mark.parametrize(
    ("short_lives", "waits"),
    [(0, 0), (1, 0), (2, SECOND // 2), (3, SECOND), (5, 4 * SECOND), (9, MOST_DELAY), (1000, MOST_DELAY)],
)
def test_a_process_that_keeps_dying_young_is_started_less_and_less_often(short_lives: int, waits: int) -> None:
    assert back_off(short_lives) == waits


# --- running --------------------------------------------------------------------------------------------


def test_a_service_starts_when_those_it_waits_for_are_healthy_and_ends_before_them(stack: Stack) -> None:
    flag = stack.directory / "healthy"
    store = StackService(
        name="store",
        command=shell("trap 'echo store ends; exit 0' TERM; echo store; while :; do sleep 0.02; done"),
        health=Health(command=("test", "-e", str(flag)), start_interval=0.05),
    )
    once = StackService(name="once", command=shell("echo once"), after=("store",), once=True)
    web = StackService(
        name="web",
        command=shell("trap 'echo web ends; exit 0' TERM; echo web; while :; do sleep 0.02; done"),
        after=("once",),
    )
    launched(stack, web, once, store)
    wait_until(lambda: one(stack, "store").condition is Condition.STARTING and "store-1: store" in said(stack))
    assert (one(stack, "web").condition, one(stack, "once").condition) == (Condition.WAITING, Condition.WAITING)
    flag.touch()
    stack.wait_ready()
    wait_until(lambda: "web-1: web" in said(stack))
    stack.down()
    assert said(stack) == [
        "store-1: store",
        "once-1: once",
        "web-1: web",
        "web-1: web ends",
        "store-1: store ends",
    ]
    assert {it.exit_code for name in ("web", "store", "once") for it in stack.instances(name)} == {0}
    assert one(stack, "once").condition is Condition.DONE


def test_a_process_that_dies_is_started_again_and_one_that_does_not_listen_is_killed(stack: Stack) -> None:
    launched(
        stack, StackService(name="deaf", command=shell("trap '' TERM; echo deaf; sleep 1000 & wait"), grace=0.2)
    )
    stack.wait_ready()
    first = one(stack, "deaf").process
    assert first is not None
    wait_until(lambda: said(stack) == ["deaf-1: deaf"])
    assert stack.kill("deaf") == [first.pid]
    wait_until(lambda: one(stack, "deaf").process not in (None, first))
    assert (one(stack, "deaf").restarts, one(stack, "deaf").exit_code) == (1, -signal.SIGKILL)
    wait_until(lambda: said(stack) == ["deaf-1: deaf"] * 2)
    stack.restart("deaf")
    wait_until(lambda: said(stack) == ["deaf-1: deaf"] * 3)
    stack.down()
    assert (one(stack, "deaf").condition, one(stack, "deaf").exit_code) == (Condition.STOPPED, -signal.SIGKILL)


def test_what_never_gets_healthy_is_reported_with_what_it_said(stack: Stack) -> None:
    bad = Health(command=shell("echo no room on the shelf; exit 1"), start_interval=0.05)
    launched(stack, StackService(name="bad", command=SLEEPS, health=bad))
    wait_until(lambda: one(stack, "bad").health == "no room on the shelf")
    with pytest.raises(NotReadyError, match="bad-1 is starting: no room on the shelf"):
        stack.wait_ready(seconds=0)


def test_a_health_check_that_does_not_exist_is_reported_and_ends_nobody(stack: Stack) -> None:
    launched(stack, StackService(name="odd", command=SLEEPS, health=Health(command=("no-such-check",))))
    wait_until(lambda: one(stack, "odd").health == "no-such-check: cannot be started: No such file or directory")
    assert stack.running


def test_what_waits_is_reported_with_what_it_waits_for(stack: Stack) -> None:
    launched(
        stack,
        StackService(name="store", command=SLEEPS, health=Health(command=("false",), start_interval=0.05)),
        StackService(name="web", command=SLEEPS, after=("store",)),
    )
    wait_until(lambda: one(stack, "web").condition is Condition.WAITING)
    assert stack.complaint().splitlines() == ["store-1 is starting: see its log", "web-1 is waiting for store-1"]


def test_a_healthy_service_becomes_unhealthy_after_its_retries_and_healthy_again(stack: Stack) -> None:
    flag = stack.directory / "healthy"
    flag.touch()
    health = Health(command=("test", "-e", str(flag)), interval=0.05, start_interval=0.05, retries=2)
    launched(stack, StackService(name="moody", command=SLEEPS, health=health))
    stack.wait_ready()
    flag.unlink()
    wait_until(lambda: one(stack, "moody").condition is Condition.UNHEALTHY)
    assert one(stack, "moody").restarts == 0
    flag.touch()
    wait_until(lambda: one(stack, "moody").condition is Condition.HEALTHY)


def test_scaling_stopping_starting_and_restarting_by_name(stack: Stack) -> None:
    launched(stack, StackService(name="many", command=SLEEPS, scale=2), StackService(name="other", command=SLEEPS))
    stack.wait_ready()
    before = {it.name: it.process for it in stack.instances("many")}
    assert set(before) == {"many-1", "many-2"}
    stack.restart("many-2")
    assert one(stack, "many-1").process == before["many-1"]
    assert one(stack, "many-2").process != before["many-2"]
    stack.scale("many", 1)
    wait_until(lambda: one(stack, "many-2").condition is Condition.STOPPED)
    stack.stop("many")
    assert {it.process for it in stack.instances("many")} == {None}
    stack.start("many")
    assert {it.condition for it in stack.instances("many")} == {Condition.HEALTHY}
    with pytest.raises(StackError, match='there is no service "mayn" in this stack; there are many, other'):
        stack.restart("mayn")


def test_pausing_freezes_all_processes_of_a_service(stack: Stack) -> None:
    launched(stack, StackService(name="pair", command=shell("sleep 1000 & wait")))
    stack.wait_ready()
    (pid,) = stack.pause("pair")
    family = [psutil.Process(pid), *psutil.Process(pid).children()]
    wait_until(lambda: {it.status() for it in family} == {psutil.STATUS_STOPPED})
    stack.resume("pair")
    wait_until(lambda: psutil.STATUS_STOPPED not in {it.status() for it in family})


def test_a_command_that_does_not_exist_is_reported_in_its_log(stack: Stack) -> None:
    launched(stack, StackService(name="gone", command=("no-such-command",)))
    wait_until(lambda: "gone-1: no-such-command: cannot be started: No such file or directory" in said(stack))
    wait_until(lambda: one(stack, "gone").condition is Condition.BACKING_OFF)


# --- after a crash --------------------------------------------------------------------------------------


def test_leftovers_of_a_supervisor_that_was_killed_are_ended_by_the_next(stack: Stack) -> None:
    launched(stack, StackService(name="a", command=SLEEPS), StackService(name="b", command=SLEEPS))
    stack.wait_ready()
    left = {it.process for name in ("a", "b") for it in stack.instances(name)}
    published = stack.published()
    assert published is not None
    with pytest.raises(AlreadyRunningError):
        stack.launch()
    assert send(published.supervisor, signal.SIGKILL)
    wait_until(lambda: not stack.running)
    assert set(leftovers(stack.directory)) == left
    stack.launch()
    stack.wait_ready()
    assert not any(process_of(it) for it in left if it)
    assert not left & {it.process for name in ("a", "b") for it in stack.instances(name)}


def test_down_ends_leftovers_also_those_that_were_never_written_down(stack: Stack) -> None:
    launched(stack, StackService(name="a", command=SLEEPS))
    stack.wait_ready()
    published, process = stack.published(), one(stack, "a").process
    assert published is not None
    assert process is not None
    send(published.supervisor, signal.SIGKILL)
    wait_until(lambda: not stack.running)
    (stack.directory / "state.json").unlink()
    assert stack.down() == [(process.pid, "")]
    assert process_of(process) is None


def test_a_stranger_that_has_got_the_pid_of_a_service_is_left_alone(stack: Stack) -> None:
    """A state file of before a reboot names pids that belong to others by now."""
    stranger = subprocess.Popen(SLEEPS, start_new_session=True)
    try:
        true = identify(stranger.pid)
        assert true is not None
        written = Identity(true.pid, true.started - 3_600)
        write_definition(
            stack.directory / "stack.json", Definition(services=(StackService(name="a", command=SLEEPS),))
        )
        seen = ServiceState(name="a-1", service="a", condition=Condition.HEALTHY, process=written)
        publish(stack.directory, Published(supervisor=written, instances=(seen,)))
        assert leftovers(stack.directory) == {}
        assert stack.kill("a") == []
        assert stack.down() == []
        launched(stack, StackService(name="a", command=SLEEPS)).wait_ready()
        stack.down()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def watched(stack: Stack, reaction: str) -> tuple["subprocess.Popen[bytes]", Identity]:
    """A supervisor in the foreground, that has started one service; `reaction` runs with each line of it."""
    service = StackService(name="a", command=shell("while :; do test -e speak && echo spoken; sleep 0.05; done"))
    write_definition(stack.directory / "stack.json", Definition(services=(service,)))
    program = (
        # Where the tests run under nohup, it would be deaf to a terminal that is closed.
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
        "import sys, pathlib; from volsched.lab.stack.run import supervise; "
        f"supervise(pathlib.Path(sys.argv[1]), on_line=lambda line: {reaction})"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", program, str(stack.directory)])
    wait_until(lambda: stack.published() is not None and bool(stack.published().settled))  # type: ignore[union-attr]
    process = one(stack, "a").process
    assert process is not None
    return supervisor, process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=["ctrl-c", "a closed terminal"])
def test_what_a_terminal_sends_ends_everything(stack: Stack, number: signal.Signals) -> None:
    supervisor, process = watched(stack, reaction="None")
    supervisor.send_signal(number)
    assert supervisor.wait(timeout=HANG_SECONDS) == 0
    assert process_of(process) is None


def test_a_reader_of_its_lines_who_goes_away_ends_everything(stack: Stack) -> None:
    """`volsched stack up | head`."""
    supervisor, process = watched(stack, reaction="line.text == 'spoken' and sys.exit(9)")
    (stack.directory / "speak").touch()
    assert supervisor.wait(timeout=HANG_SECONDS) == 9
    assert process_of(process) is None


def test_a_directory_that_is_removed_ends_everything(stack: Stack) -> None:
    launched(stack, StackService(name="a", command=SLEEPS)).wait_ready()
    seen, process = stack.published(), one(stack, "a").process
    assert seen is not None
    assert process is not None
    stack.directory.rename(stack.directory.with_name("removed"))
    wait_until(lambda: process_of(process) is None and process_of(seen.supervisor) is None)


def test_a_supervisor_that_cannot_write_goes_on_and_leaves_no_rubbish(stack: Stack) -> None:
    """As on a full disk."""
    launched(stack, StackService(name="a", command=SLEEPS)).wait_ready()
    process, state = one(stack, "a").process, stack.directory / "state.json"
    assert process is not None
    wait_until(lambda: _is_in_the_way(state))
    assert send(process, signal.SIGKILL)
    wait_until(lambda: {it.pid for it in marked(stack.directory)} - {process.pid} != set())
    assert len(list(stack.directory.glob(".state.json.*"))) <= 1
    state.rmdir()
    wait_until(lambda: state.is_file() and one(stack, "a").restarts == 1)


def _is_in_the_way(file: Path) -> bool:
    """A directory in place of a file; the supervisor may be quicker with its file."""
    file.unlink()
    try:
        file.mkdir()
    except FileExistsError:
        return False
    return True


def test_asking_whether_a_stack_runs_hinders_nobody(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    with alone(tmp_path):
        assert is_locked(tmp_path)
    with (tmp_path / "lock").open() as asked:
        fcntl.flock(asked, fcntl.LOCK_SH)
        assert not is_locked(tmp_path)


def test_a_supervisor_that_cannot_start_is_reported_at_once(stack: Stack) -> None:
    with pytest.raises(NotReadyError, match=r"did not start; see .*supervisor\.log"):
        launched(stack, StackService(name="a", command=SLEEPS, after=("nobody",)))
    assert 'waits for "nobody"' in (stack.directory / "supervisor.log").read_text()
    (stack.directory / "stack.json").unlink()


def test_data_of_another_postgresql_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("9\n")
    with pytest.raises(
        WheelMissingError, match=r"was created by PostgreSQL 9, and \d+ is installed; .*volsched backup"
    ):
        make_cluster(postgres_programs(), tmp_path / "postgres", "secret")


def test_a_state_that_was_lost_with_the_machine_is_no_state(stack: Stack) -> None:
    (stack.directory / "state.json").touch()
    assert stack.published() is None
    (stack.directory / "state.json").unlink()


def test_a_port_that_is_taken_is_reported_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(WheelMissingError, match=rf"port {port} of 127\.0\.0\.1, which api needs.*--port"):
            check_ports(Definition(services=(), urls={"api": f"http://127.0.0.1:{port}"}))
    check_ports(Definition(services=(), urls={"api": f"http://127.0.0.1:{port}"}))


# --- logs -----------------------------------------------------------------------------------------------


def test_lines_are_merged_once_they_are_whole_and_go_on_after_a_file_was_emptied(tmp_path: Path) -> None:
    told: list[str] = []
    merger = Merger(tmp_path, lambda line: told.append(f"{line.instance} {line.text}"))
    a, b = tmp_path / "a-1.log", tmp_path / "b-1.log"
    a.write_text("one\ntw")
    b.write_bytes(b"\xff three\n")
    assert merger.step(0) == 2
    with a.open("a") as file:
        file.write("o\tand more\n")
    assert merger.step(1) == 1
    assert merger.step(2) == 0
    assert told == ["a-1 one", "b-1 \ufffd three", "a-1 two\tand more"]
    assert [it.text for it in read_lines(tmp_path)] == ["one", "\ufffd three", "two\tand more"]
    assert Merger(tmp_path).step(3) == 0


def test_the_health_check_of_a_loop_looks_at_its_last_step(tmp_path: Path) -> None:
    def asked(file: Path) -> tuple[int, str]:
        ran = subprocess.run(
            [sys.executable, "-m", "volsched.runtime.health_check", "scheduler"],
            env={**os.environ, "VOLSCHED_HEARTBEAT_FILE": str(file)},
            capture_output=True,
            text=True,
        )
        return ran.returncode, ran.stdout.strip()

    beat = tmp_path / "beat"
    # It cannot be written, and its process goes on: the health check tells.
    assert Heartbeat(tmp_path / "gone" / "beat").around(lambda _: 7)(0) == 7
    assert asked(beat) == (1, "no step has ended yet")
    assert Heartbeat(beat).around(lambda _: 7)(0) == 7
    assert asked(beat) == (0, "healthy")
    old = time.time() - 45
    os.utime(beat, (old, old))
    assert asked(beat)[0] == 1
