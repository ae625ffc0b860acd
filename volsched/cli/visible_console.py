"""The two consoles that style what commands print. They are apart from `cli.console` because rich takes longer to
load than most tables to print: a command that styles nothing does not load it."""

import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from volsched.cli import plain_text
from volsched.cli.console import WIDE
from volsched.kube.display_text import visible


class VisibleConsole(Console):
    """Styles what it prints, and sends nothing else that a terminal would obey."""

    def render_str(self, text: str, **options: Any) -> Text:
        # Before columns are as wide as their cells: a plain arrow takes more room than the one it stands for.
        return super().render_str(plain_text(visible(text), self.encoding), **options)


# Not emoji: rich would put a picture in the place of `:x:`, which may be part of a name, a path or a message.
stdout = VisibleConsole(highlight=False, emoji=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDE)
stderr = VisibleConsole(stderr=True, highlight=False, emoji=False, soft_wrap=True)
