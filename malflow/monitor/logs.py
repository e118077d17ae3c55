"""Log lines for machines and for terminals, in which no value of a user can break out of its line."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from malflow.monitor.documents import iso
from malflow.store.redaction import redacted

__all__ = ["JsonFormatter", "TextFormatter"]

_FACTS = ("job", "tick", "operator", "snapshot", "worker")
_BREAK = re.compile(r"\r\n|\r|\n")


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
        """Return the traceback, each line of it escaped and indented, so that none looks like a line of the log."""
        return "\n".join(f"    {redacted(line)}" for line in _BREAK.split(super().formatException(ei)))
