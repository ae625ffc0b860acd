"""A served store that has settled."""

import re

AGE = re.compile(r"\b\d+[smhd](\d+[smhd])?( ago)?\b")
"""Time goes on between two commands."""


def settled(text: str) -> str:
    """Without what the moment of asking decides: ages, and the width of their column."""
    return "\n".join(re.sub(r" +", " ", AGE.sub("AGE", line)).rstrip() for line in text.splitlines())
