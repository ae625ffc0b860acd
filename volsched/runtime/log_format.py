"""The format of log lines on stderr: text for people, or one JSON object per line for programs; same ids."""

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from volsched.kube.display_text import visible

IDS = ("binding", "attempt", "position")
"""The ids at the end of a text line: arguments of commands that show more. All else is in the message."""


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        return logging.getLevelNamesMapping()[self.upper()]


class TextFormatter(logging.Formatter):
    """`2026-11-17T22:31:05.123Z WARNING scheduling: pod shop/db-0 found no node: … [attempt=3f2a position=12]`"""

    def format(self, record: logging.LogRecord) -> str:
        ids = " ".join(f"{name}={fields[name]}" for name in IDS if name in (fields := _fields(record)))
        said = _one_line(record.getMessage()) + (f" [{ids}]" if ids else "")
        line = f"{_at(record)} {record.levelname} {record.name.removeprefix('volsched.')}: {said}"
        # A traceback is for developers; it stays readable.
        return f"{line}\n{visible(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        said |= {name: value for name, value in _fields(record).items() if value is not None}
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str, ensure_ascii=False)


def configure_logging(level: LogLevel, form: LogFormat) -> None:
    """Set the log format of the whole process; a second call replaces the first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries log only warnings and errors; their details are noise.
    root.setLevel(max(level.number, logging.WARNING))
    logging.getLogger("volsched").setLevel(level.number)
    logging.getLogger("workers").setLevel(level.number)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "volsched", {})
    return fields


def _at(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _one_line(text: str) -> str:
    """Escape line breaks: names and messages come from any writer of objects, and must not forge a log line."""
    return visible(text).replace("\n", "\\n")
