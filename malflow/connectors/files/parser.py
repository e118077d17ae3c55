"""The contract of a file format's parser, and the records that it cannot read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from malflow.connectors.files.lines import ByteBuffer, LineBuffer, split_lines
from malflow.errors import MalflowError
from malflow.failures import OnError as Policy
from malflow.store.redaction import shown_path

__all__ = [
    "IN_ANOTHER_ENCODING",
    "IN_A_HEADER",
    "IN_A_RECORD",
    "BadRecord",
    "ColumnsParser",
    "OnError",
    "Parsed",
    "RecordParser",
    "Schema",
    "why_undecodable",
]

V = TypeVar("V")

Schema: TypeAlias = Any
"""A `pyarrow.Schema`, of an optional library."""


class Parsed(NamedTuple):
    """The result of parsing the lines up to `end`: a value, a reason for failure, or neither if blank."""

    end: int
    value: Any = None
    reason: str | None = None
    blank: bool = False


class RecordParser(ABC, Generic[V]):
    """Parse the lines of one file into records, without consuming them."""

    header: tuple[str, ...] | None = None

    buffer: type[LineBuffer] = LineBuffer
    """The buffer that it reads lines from."""

    singly: int | None = None
    """How many records of a poll with a bad one are parsed one by one; None for all."""

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
    def parse(self, lines: LineBuffer, limit: int) -> tuple[Sequence[V], int] | None:
        """Return up to `limit` records and the number of lines they span; None if one is bad."""

    @abstractmethod
    def parse_one(self, lines: LineBuffer, at: int) -> Parsed:
        """Parse the record that starts at line `at`, or return the reason why it is bad."""


class ColumnsParser(RecordParser[Any]):
    """Parse lines as columns: as many together as a poll asks for; about a bad one, fewer until it is alone."""

    buffer: type[LineBuffer] = ByteBuffer
    singly: int | None = 1

    def __init__(self) -> None:
        self._most: int | None = None

    @abstractmethod
    def _parsed(self, lines: ByteBuffer, most: int) -> tuple[Sequence[Any], int]:
        """Return up to `most` records and the number of lines they span.

        Raises:
            ValueError: if one is bad.
        """

    def parse(self, lines: LineBuffer, limit: int) -> tuple[Sequence[Any], int] | None:
        """Return up to `limit` records and the number of lines they span; None if the next one is bad."""
        assert isinstance(lines, ByteBuffer)  # noqa: S101 - it is the parser's
        most = limit if self._most is None else min(limit, self._most)
        while most:
            try:
                found = self._parsed(lines, most)
            except ValueError:
                most = min(most, lines.buffered) // 2
            else:
                self._most = None if most == limit else 2 * most
                return found
        self._most = 1
        return None


_SHOWN = 80
"""The most characters of a bad record in a message: about a line of a terminal. Fewer hide the fault, more hide the
reason after it."""

IN_A_RECORD = "to continue without it, pass on_error='skip', or a function that takes this error"
"""The remedy for a bad record, for messages."""

IN_ANOTHER_ENCODING = "pass encoding= if the file has another one"
"""The first remedy for a record that does not decode."""

IN_A_HEADER = "correct it, or override it with header=True, fields=[...]"
"""The remedy for a bad header."""


class BadRecord(MalflowError, ValueError):
    """A record that cannot be read.

    Attributes:
        path: the file, as its part is named.
        line: the physical line where the record starts, from 1.
        record: its text without the last line end; bytes if it does not decode.
        reason: the cause.
    """

    def __init__(self, path: str, line: int, record: str | bytes, reason: str, *, mend: str = IN_A_RECORD) -> None:
        shown = f"{record[:_SHOWN]!r}..." if len(record) > _SHOWN else repr(record)
        super().__init__(f"{shown_path(path)} line {line}: {reason}; got {shown}; {mend}")
        self.path = path
        self.line = line
        self.record = record
        self.reason = reason


OnError: TypeAlias = Literal["fail", "skip", "dead_letter"] | Callable[[BadRecord], object] | Policy
"""Handling of a bad record: end the run, skip it, keep it as a dead letter, or pass it to the function and skip it."""


def why_undecodable(raw: bytes, encoding: str) -> str:
    """Return the reason why bytes do not decode."""
    try:
        raw.decode(encoding)
    except UnicodeDecodeError as error:
        return f"byte {raw[error.start]:#04x} at {error.start} is not {encoding} ({error.reason})"
    return f"bytes that are not {encoding}"
