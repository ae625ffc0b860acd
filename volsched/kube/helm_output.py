"""What Helm prints of a release (`helm install --dry-run`, `helm get all`): its manifest between a head and notes.

The manifest is what Helm would apply. Hooks are not: they run and go, and notes are prose that need not be YAML.
"""

import re
from dataclasses import dataclass

_HEAD = re.compile(rb"^NAME: ", re.MULTILINE)
_HEAD_BYTES = 1000
"""`helm upgrade` greets before the head; a manifest of our own that has such a line is no release."""
_MANIFEST = re.compile(rb"^MANIFEST:[ \t]*\r?$", re.MULTILINE)
_NOTES = re.compile(rb"^NOTES:[ \t]*\r?$", re.MULTILINE)
_NAMESPACE = re.compile(rb"^NAMESPACE: (\S+)", re.MULTILINE)
_OTHER_LINE = re.compile(rb"^(?!---).+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HelmRelease:
    manifest: bytes
    """With every line at its place in the input, so that an error names the right one."""
    namespace: str
    """Where Helm would put objects that name none."""


def helm_release(data: bytes) -> HelmRelease | None:
    """None where the input is not what Helm prints of a release."""
    head = _HEAD.search(data, 0, _HEAD_BYTES)
    begin = _MANIFEST.search(data, head.end()) if head else None
    if head is None or begin is None:
        return None
    end = _NOTES.search(data, begin.end())
    last = end.start() if end else len(data)
    namespace = _NAMESPACE.search(data, head.start(), begin.start())
    return HelmRelease(
        _OTHER_LINE.sub(b"", data[: begin.end()]) + data[begin.end() : last],
        namespace[1].decode(errors="replace") if namespace else "",
    )
