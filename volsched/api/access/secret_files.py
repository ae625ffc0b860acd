"""Files that only their owner may read."""

import os
from pathlib import Path


def write_secret(path: Path, content: bytes) -> None:
    """For its owner alone from the first byte on; a file that was there, and its permissions, do not matter."""
    aside = path.with_name(f"{path.name}.part")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
    aside.replace(path)
