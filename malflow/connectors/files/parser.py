"""The contract of a file format's parser of records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, TypeVar

from malflow.connectors.files.lines import LineBuffer, split_lines

__all__ = ["Parsed", "RecordParser"]

V = TypeVar("V")


class Parsed(NamedTuple):
    """The result of parsing the lines up to `end`: a value, a reason for failure, or neither if blank."""

    end: int
    value: Any = None
    reason: str | None = None
    blank: bool = False


class RecordParser(ABC, Generic[V]):
    """Parse the lines of one file into records, without consuming them."""

    header: tuple[str, ...] | None = None

    def split(self, text: str) -> list[str]:
        """Split a block of text into lines."""
        return split_lines(text)

    def parse_header(self, lines: LineBuffer, at: int) -> Parsed | None:
        """Parse the `header` in line `at` of a new file; return None if no header is expected."""
        del lines, at
        return None

    def doubt(self, first: V) -> str | None:
        """Return a doubt about the first record of a file, such as another delimiter; None without one."""
        del first
        return None

    @abstractmethod
    def parse(self, lines: LineBuffer, limit: int) -> tuple[list[V], int] | None:
        """Return up to `limit` records and the number of lines they span; None if one is bad."""

    @abstractmethod
    def parse_one(self, lines: LineBuffer, at: int) -> Parsed:
        """Parse the record that starts at line `at`, or return the reason why it is bad."""
