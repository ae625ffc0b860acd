"""The command line: one module per verb family. Data on stdout, everything else on stderr.

It parses, calls and prints; nothing imports it.
"""

import logging
import os
import signal
import sys
import threading

INTERRUPTED = 130
"""As shells have it for SIGINT; what was committed before is kept, what was not is not there."""
AGAIN_SECONDS = 0.05


def main() -> None:
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _unraisable
    # Nothing of ours is a plugin of pydantic; looking for some reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        # Loaded in here, so that Ctrl-C ends the command quietly at any moment.
        from volsched.cli.app import app

        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


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
