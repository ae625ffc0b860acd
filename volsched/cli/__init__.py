"""The command line: one module per verb family. Data on stdout, everything else on stderr.

It parses, calls and prints; nothing imports it.
"""

import codecs
import errno
import io
import json
import logging
import os
import signal
import sys
import threading

INTERRUPTED = 130
"""The exit code that shells use for SIGINT. What was committed before is kept."""
AGAIN_SECONDS = 0.05
TRACEBACK = "VOLSCHED_TRACEBACK"
"""If set, an internal error shows its traceback; by default it is one line."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
PLAIN = {"→": "->", "…": "...", "·": "-", "─": "-", "│": "|", "╭": "+", "╮": "+", "╰": "+", "╯": "+"}
"""Replacements for characters that the terminal's encoding lacks."""


def main() -> None:
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _unraisable
    # We use no pydantic plugins; searching for them reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    _open_standard_streams()
    _print_anywhere()
    try:
        # Imported here, so that Ctrl-C ends the command quietly at any moment.
        from volsched.cli.app import app

        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        sys.exit(_report(error))


def _open_standard_streams() -> None:
    """Opens closed standard streams: else the next opened file, such as a store, would get their descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as the process lives


def _print_anywhere() -> None:
    """Replaces characters that the encoding lacks: printing must never fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    # Escaped as in JSON and YAML, so that a program still reads the same data.
    return "".join(PLAIN.get(it) or json.dumps(it)[1:-1] for it in text), error.end


codecs.register_error("plain", _plain)


def plain_text(text: str, encoding: str) -> str:
    """The text as a terminal with this encoding shows it."""
    return text if text.isascii() else text.encode(encoding, errors="plain").decode(encoding)


def _report(error: Exception) -> int:
    """Print an unforeseen error in one line; returns the exit code."""
    print(f"error: {_error_text(error)}", file=sys.stderr)
    return 2 if isinstance(error, ModuleNotFoundError) else 1


def _error_text(error: Exception) -> str:
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
    if isinstance(error, OSError) and error.errno in FULL:
        return f"the output cannot be written: {error.strerror}; free space, or write it elsewhere"
    kind, words = type(error).__name__, " ".join(str(error).split())[:500]
    return f"this is a bug in volsched: {kind}: {words}; {TRACEBACK}=1 shows the traceback, for a report"


def _interrupt(*_: object) -> None:
    # Interrupted libraries log a traceback, which is useless after Ctrl-C.
    logging.disable()
    raise KeyboardInterrupt


def _unraisable(lost: "sys.UnraisableHookArgs") -> None:
    """Python drops exceptions that are raised while an object is destroyed: a Ctrl-C among them is sent again."""
    if lost.exc_type is KeyboardInterrupt:
        again = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), signal.SIGINT))
        # A command that ends earlier does not wait for the timer.
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(lost)


__all__ = ["main"]
