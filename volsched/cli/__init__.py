"""The command line: one module per verb family. Data on stdout, everything else on stderr.

It parses, calls and prints; nothing imports it.
"""

import codecs
import io
import json
import logging
import os
import signal
import sys
import threading

INTERRUPTED = 130
"""As shells have it for SIGINT; what was committed before is kept, what was not is not there."""
AGAIN_SECONDS = 0.05
TRACEBACK = "VOLSCHED_TRACEBACK"
"""Set, it shows where a fault of ours was met; a person who only uses the command is not shown it."""
PLAIN = {"→": "->", "…": "...", "·": "-", "─": "-", "│": "|", "╭": "+", "╮": "+", "╰": "+", "╯": "+"}
"""What stands for a character that a terminal's encoding has not."""


def main() -> None:
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _unraisable
    # Nothing of ours is a plugin of pydantic; looking for some reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    _print_anywhere()
    try:
        # Loaded in here, so that Ctrl-C ends the command quietly at any moment.
        from volsched.cli.app import app

        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        sys.exit(_told(error))


def _print_anywhere() -> None:
    """A terminal that has no arrows gets what looks like one: to print must never fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    # As JSON and YAML write it: data that is read by a program stays what it is.
    return "".join(PLAIN.get(it) or json.dumps(it)[1:-1] for it in text), error.end


codecs.register_error("plain", _plain)


def plain_text(text: str, encoding: str) -> str:
    """As a terminal of this encoding shows it."""
    return text if text.isascii() else text.encode(encoding, errors="plain").decode(encoding)


def _told(error: Exception) -> int:
    """What no command has foreseen, in a line; the exit code."""
    print(f"error: {_words(error)}", file=sys.stderr)
    return 2 if isinstance(error, ModuleNotFoundError) else 1


def _words(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        from volsched.runtime.extras import MissingExtraError, extra_of, missing

        if isinstance(error, MissingExtraError):
            return str(error)
        root = (error.name or "").partition(".")[0]
        extra = extra_of(root)
        if extra is not None:
            return missing(root, extra)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; check the path and its permissions"
    kind, words = type(error).__name__, " ".join(str(error).split())[:500]
    return f"this is a fault of volsched itself: {kind}: {words}; {TRACEBACK}=1 shows where, for a report"


def _interrupt(*_: object) -> None:
    # Libraries that are interrupted in the middle log it with a traceback. Whoever presses Ctrl-C knows.
    logging.disable()
    raise KeyboardInterrupt


def _unraisable(lost: "sys.UnraisableHookArgs") -> None:
    """Python throws away what is raised while an object is destroyed, and with it a Ctrl-C that came just then."""
    if lost.exc_type is KeyboardInterrupt:
        again = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), signal.SIGINT))
        # A command that is over by then is not held up for it.
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(lost)


__all__ = ["main"]
