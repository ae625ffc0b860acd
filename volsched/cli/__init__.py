"""The command line: one module per verb family. Data on stdout, everything else on stderr.

It parses, calls and prints; nothing imports it.
"""

import logging
import signal
import sys

INTERRUPTED = 130
"""As shells have it for SIGINT; what was committed before is kept, what was not is not there."""


def main() -> None:
    signal.signal(signal.SIGINT, _interrupt)
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


__all__ = ["main"]
