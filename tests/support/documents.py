"""Console sessions in documents: what is run, what is shown, and whether the two still agree.

A block that begins with ```console is a session: lines after `$ ` are commands, the others what they print. All
blocks of a document are one session on one store, unless a comment above a block says otherwise:

`<!-- not run: why -->`          it needs what a test does not have
`<!-- new store: NAME -->`       it goes on in an empty store, or in one that a test has filled (`STORES`)
`<!-- before: COMMAND -->`       what was done and is not shown

A yaml or python block whose first line is `# NAME.yaml` or `# NAME.py` is a file of the session.

`…` stands for anything: within a line for some text, on a line of its own for any number of lines. Times, ages,
ids, hashes and positions differ from run to run and count as equal. A command without output in the document may
print anything. It must exit with 0 unless `echo $?` follows, or an error is shown.
"""

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from typer.testing import CliRunner

from tests.support.patience import HANG_SECONDS
from volsched.cli.app import app

CHAIN, INTO, STATUS = "&&", ">", ["echo", "$?"]
ANYTHING = "…"
VARYING = (
    (r"\s+", " "),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\b[0-9a-f]{64}\b", "HASH"),
    (r"\b(pvc-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UID"),
    (r"\b(pvc-)?[0-9a-f]{12}\b", "UID"),
    (r"\b\d+(d|h|m|s)(\d+(h|m|s))?\b", "AGE"),
    (r"\b\d+\.\d+ s\b", "TIME"),
    (r"\(\d+/s\)", "RATE"),
    (r"\bpositions? \d+( to \d+)?", "POSITION"),
    (r"\b\d+ events( in \d+ streams)?", "N events"),
    (r"^\d+ (?=TIME)", "POSITION "),
)


@dataclass(frozen=True, slots=True)
class Command:
    """A line of a session, and what the document shows of its output."""

    place: str
    text: str
    shown: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Block:
    place: str
    not_run: str | None = None
    store: str | None = None
    before: list[str] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)


def blocks(document: Path) -> Iterator[Block]:
    """The console blocks of a document, with what the comments above each say."""
    block, inside = Block(""), False
    for number, line in enumerate(document.read_text().splitlines(), start=1):
        place = f"{document.name}:{number}"
        if inside and line == "```":
            yield block
            block, inside = Block(""), False
        elif inside:
            _take(block, line, place)
        elif line == "```console":
            block.place, inside = place, True
        elif comment := re.fullmatch(r"<!-- (not run|new store|before): (.+) -->", line):
            what, text = comment.groups()
            if what == "not run":
                block.not_run = text
            elif what == "new store":
                block.store = text
            else:
                block.before.append(text)
        elif line and not line.startswith("<!--"):
            assert block == Block(""), f"{place}: the comment above stands above no console block"


def files(document: Path) -> dict[str, str]:
    """The files that a document shows, by name."""
    text = document.read_text()
    return dict(re.findall(r"^```(?:yaml|python)\n# (\S+\.(?:yaml|py))\n(.*?\n)```$", text, re.M | re.S))


def _take(block: Block, line: str, place: str) -> None:
    if line.startswith("$ "):
        block.commands.append(Command(place, line.removeprefix("$ ")))
    else:
        assert block.commands, f"{place}: output of no command"
        block.commands[-1].shown.append(line)


@dataclass(slots=True)
class Session:
    """Somebody at a shell that knows one command."""

    directory: Path
    fill: Callable[[str, Path], None]
    """Makes the store of a name in a file."""
    status: int = 0
    _stores: int = 0
    _environment: dict[str, str] = field(default_factory=dict)

    def play(self, block: Block) -> None:
        if block.store is not None or not self._environment:
            self._new_store(block.store)
        for text in block.before:
            ran = self._run(text, block.place)
            assert self.status == 0, f"{block.place}: {text}\n{ran}"
        for number, command in enumerate(block.commands):
            following = block.commands[number + 1].text if number + 1 < len(block.commands) else ""
            self._check(command, asked=shlex.split(following) == STATUS)

    def _new_store(self, name: str | None) -> None:
        self._stores += 1
        path = self.directory / f"store-{self._stores}.db"
        self._environment = {
            "VOLSCHED_DATABASE_URL": f"sqlite:///{path}",
            "LOGNAME": "ada",
            "NO_COLOR": "1",
            "COLUMNS": "250",
        }
        if name not in (None, "empty"):
            self.fill(name or "", path)

    def _check(self, command: Command, *, asked: bool) -> None:
        got = self._run(command.text, command.place)
        told = f"{command.place}: $ {command.text}\n(exit {self.status})\n{got}"
        if not asked and shlex.split(command.text) != STATUS:
            failed = any(line.startswith("error: ") for line in command.shown)
            assert (self.status != 0) == failed, f"{told}\nshow the error, or the exit code with echo $?"
        if command.shown:
            assert agrees(command.shown, got.splitlines()), (
                f"{told}\nis not what the document shows:\n" + "\n".join(command.shown)
            )

    def _run(self, text: str, place: str) -> str:
        """A line of a shell: commands of ours chained with &&, whose output may go into a file."""
        lexer = shlex.shlex(text, posix=True, punctuation_chars="&>|")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words = list(lexer)
        if words == STATUS:
            return f"{self.status}\n"
        out = ""
        for part in _split(words, CHAIN):
            told, *target = _split(part, INTO)
            assert told[0] == "volsched", f"{place}: {text}: only volsched is run; mark the block as not run"
            assert "|" not in told, f"{place}: {text}: there are no pipes; mark the block as not run"
            ran = CliRunner().invoke(app, told[1:], env=self._environment)
            if ran.exception is not None and not isinstance(ran.exception, SystemExit):
                raise ran.exception
            self.status = ran.exit_code
            if target:
                (self.directory / target[0][0]).write_text(ran.stdout)
                out += ran.stderr
            else:
                out += ran.output
            if self.status:
                break
        return out


@dataclass(slots=True)
class ShellSession(Session):
    """Somebody at a real shell, with the commands and the home that the environment names."""

    environment: Mapping[str, str] = field(default_factory=dict)

    def _new_store(self, name: str | None) -> None:
        assert name is None, "the store of a shell session is where the program puts it"
        self._environment = dict(self.environment)

    def _run(self, text: str, place: str) -> str:  # noqa: ARG002 (a shell takes any line)
        if shlex.split(text) == STATUS:
            return f"{self.status}\n"
        ran = subprocess.run(
            ["bash", "-c", text], cwd=self.directory, env=self._environment, text=True, timeout=HANG_SECONDS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.status = ran.returncode
        return ran.stdout


def _split(words: list[str], at: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == at:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def agrees(shown: list[str], got: list[str]) -> bool:
    """Whether the output is what the document shows, as loosely as the document says."""
    pattern = ""
    for line in map(normal, shown):
        pattern += r"(?:.*\n)*?" if line == ANYTHING else ".*".join(map(re.escape, line.split(ANYTHING))) + "\n"
    return re.fullmatch(pattern, "".join(f"{normal(line)}\n" for line in got)) is not None


def normal(line: str) -> str:
    for varying, name in VARYING:
        line = re.sub(varying, name, line)
    return line.strip()
