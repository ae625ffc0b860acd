"""The command line: one module per verb family. Data on stdout, everything else on stderr.

It parses, calls and prints; nothing imports it.
"""

from volsched.cli.app import main

__all__ = ["main"]
