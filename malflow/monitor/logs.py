"""Log lines for machines and for terminals, in which no value of a user can break out of its line."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from malflow.store.redaction import redacted
from malflow.words import iso

__all__ = ["JsonFormatter", "RepeatFilter", "TextFormatter"]

_FACTS = ("job", "tick", "operator", "snapshot", "worker")
_BREAK = re.compile(r"\r\n|\r|\n")
_LONGEST = 200
"""The beginning of a text, in characters, by which warnings are the same."""
_MOST_WARNINGS = 1000
"""Different warnings that are remembered."""


class JsonFormatter(logging.Formatter):
    r"""Format each record as a JSON document on one line.

    It has ``time`` (ISO 8601 in UTC), ``level``, ``logger``, ``message``; ``job``, ``tick``, ``operator``, ``snapshot``
    and ``worker`` where the line is about one; and ``error`` with the traceback of an exception.

    >>> record = logging.LogRecord("malflow.runtime", logging.INFO, "", 0, "hello %s", ("a\nb",), None)
    >>> json.loads(JsonFormatter().format(record))["message"]
    'hello a\nb'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the document."""
        content: dict[str, Any] = {
            "time": iso(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = getattr(record, "event", None)
        for name in _FACTS:
            value = getattr(record, name, getattr(event, name, None))
            if value is not None:
                content[name] = value if type(value) in (int, str) else str(value)
        if record.exc_info:
            content["error"] = self.formatException(record.exc_info)
        return json.dumps(content, ensure_ascii=True)


class TextFormatter(logging.Formatter):
    r"""Format each record as one line, with line breaks, escape codes and bidi marks escaped, and its traceback below.

    >>> record = logging.LogRecord("malflow.runtime", logging.WARNING, "", 0, "hello %s", ("a\n\x1b[2Jb",), None)
    >>> TextFormatter("%(levelname)s %(message)s").format(record)
    'WARNING hello a\\n\\x1b[2Jb'
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name of the base class
        """Return the line."""
        return redacted(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as there
        """Return the traceback, each line of it escaped and indented. None then looks like a line of the log."""
        return "\n".join(f"    {redacted(line)}" for line in _BREAK.split(super().formatException(ei)))


class RepeatFilter(logging.Filter):
    """Pass a warning that repeats once in a while only, with the number of those that were left out.

    Two records are the same warning if they come from one logger and are about events of one kind or, without an event,
    have one text before its values are put in. It belongs to a handler; those after it see the number, too.

    Args:
        seconds: the time after which the same warning passes again.
        clock: a clock that only advances, in seconds.
    """

    def __init__(self, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._passed: dict[tuple[str, int, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a record; one that stands for others has their number in its text."""
        if record.levelno != logging.WARNING:
            return True
        event = getattr(record, "event", None)
        text = record.msg[:_LONGEST] if isinstance(record.msg, str) else type(record.msg)
        same = record.name, record.levelno, text if event is None else type(event)
        with self._lock:
            at, left_out = self._passed.get(same, (None, 0))
            now = self._clock()
            if at is not None and now - at < self._seconds:
                self._passed[same] = at, left_out + 1
                return False
            if len(self._passed) >= _MOST_WARNINGS:
                self._passed.clear()
            self._passed[same] = now, 0
        if left_out and isinstance(record.msg, str):
            record.msg += f" (and {left_out} like it before)"
        return True
