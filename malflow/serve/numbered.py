"""The progress of a run as bytes with a number, shared by all viewers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from malflow.monitor.documents import Document, as_json

if TYPE_CHECKING:
    from malflow.monitor.watch import Watch

__all__ = ["Numbered"]

_YOUNG: Final = 0.25
"""The seconds for which viewers get the same document."""


class Numbered:
    """The latest progress; its number grows when anything but the time has changed."""

    def __init__(self) -> None:
        self._number = 0
        self._content: Document = {}
        self._data = b""
        self._watch: Watch | None = None
        self._read_at = float("-inf")

    def latest(self, watch: Watch) -> tuple[int, bytes]:
        """Return the number and the document of the progress of a run."""
        now = time.monotonic()
        if watch is self._watch and now - self._read_at < _YOUNG and not watch.is_over:
            return self._number, self._data
        content = watch.answers.progress()
        self._watch, self._read_at = watch, now
        if _without_time(content) != _without_time(self._content):
            self._number += 1
            self._content = content
            self._data = as_json({**content, "number": self._number})
        return self._number, self._data


def _without_time(content: Document) -> Document:
    return {name: it for name, it in content.items() if name != "at"}
