"""Standard input as a source of rows; its first rows are read ahead, to guess the columns."""

from __future__ import annotations

import csv
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TextIO

from malflow.connectors.by_name import Replacement
from malflow.connectors.files.csv_dialect import fault_in_fields
from malflow.connectors.files.typed import RecordTypes
from malflow.connectors.json_values import json_value
from malflow.errors import GraphError
from malflow.sources.contract import StatelessSourceImpl, StatelessSourcePartition
from malflow.words import error_line, plural

__all__ = ["InputSource", "StandardInput"]

_QUIET = 0.2
"""Seconds without a row after which the columns are guessed from the rows so far. Rows of a file come sooner, and the
first ones are to be shown within a second."""


class StandardInput:
    """Standard input: JSON lines, or CSV with a header.

    A thread reads it, as a read that waits for a line would also hold up Ctrl-C.

    Args:
        stream: the text.

    Attributes:
        header: the names of the columns of CSV; None for JSON.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ahead: list[Any] = []
        self._is_read = self._has_ended = False
        self.header: list[str] | None = None

    def first_rows(self, most: int) -> list[Any]:
        """Return the first `most` rows, or fewer if no more come for a moment.

        Raises:
            GraphError: if there are none, or they are neither JSON objects nor CSV.
        """
        threading.Thread(target=self._read, daemon=True).start()
        patience = None
        while len(self._ahead) < most and (row := self._next(patience)) is not None:
            self._ahead.append(row)
            patience = _QUIET
        if not self._ahead:
            raise GraphError(f"standard input has no rows{'' if self.header is None else ' below its header'}")
        return [*self._ahead]

    def begin(self) -> None:
        """Begin to read all rows.

        Raises:
            GraphError: if they have been read.
        """
        if self._is_read:
            raise GraphError("standard input can be read once only; write it to a file for more")
        self._is_read = True

    def rows(self, most: int) -> list[Any]:
        """Return the rows that have come, up to `most`."""
        found, self._ahead = self._ahead[:most], self._ahead[most:]
        while len(found) < most and not self._has_ended and (row := self._next(0)) is not None:
            found.append(row)
        return found

    @property
    def has_ended(self) -> bool:
        """Whether all rows were returned."""
        return self._has_ended and not self._ahead

    def _next(self, patience: float | None) -> Any:
        """Return the next row; None at the end, or if none comes in time."""
        try:
            found = self._queue.get_nowait() if patience == 0 else self._queue.get(timeout=patience)
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise GraphError(f"standard input can't be read: {error_line(found)}") from None
        self._has_ended = found is None
        return found

    def _read(self) -> None:
        try:
            for it in self._parsed():
                self._queue.put(it)
        except Exception as error:  # noqa: BLE001 - the thread that waits raises it
            self._queue.put(error)
        else:
            self._queue.put(None)

    def _parsed(self) -> Iterator[Any]:
        first = next((it for it in self._stream if it.strip()), None)
        if first is None:
            return
        lines = chain([first], self._stream)
        if first.lstrip().startswith(("{", "[")):
            yield from (_object(it) for it in lines if it.strip())
            return
        rows = csv.reader(lines, strict=True)
        self.header = next(rows)
        if fault := fault_in_fields(self.header):
            raise GraphError(f"its first line has {fault}; it must be JSON, or the header of CSV")
        for row in filter(None, rows):
            if len(row) != len(self.header):
                raise GraphError(f"line {rows.line_num} has {plural(len(row), 'field')}, expected {len(self.header)}")
            yield row


def _object(line: str) -> Any:
    value = json_value(line)
    if not isinstance(value, dict):
        raise GraphError(f"a row is a JSON object; got {type(value).__name__}")
    return value


class InputSource(StatelessSourceImpl[str, Any, int]):
    """Standard input as a connection of a table.

    Args:
        rows: the rows.
        types: the types of the columns of CSV.
    """

    keyed = False
    bounded = True

    def __init__(self, rows: StandardInput, types: Mapping[str, Any] | None = None) -> None:
        self._rows = rows
        self._types = types

    @property
    def connector(self) -> str:
        """The connector of files of the same form."""
        return "file+json" if self._rows.header is None else "file+csv"

    def option(self, _name: str) -> None:
        """Return no option."""
        return None  # noqa: RET501 - as `Connection.option` says it

    def replaced(self, replacement: Replacement) -> InputSource:
        """Return the source with the types of its columns."""
        return InputSource(self._rows, replacement.options["types"])

    def list_parts(self) -> list[str]:
        """Return the only part."""
        return ["-"]

    def build_part(self, part: str) -> _Reader:
        """Begin to read."""
        del part
        self._rows.begin()
        header, convert = self._rows.header, None
        if header is not None:
            types = RecordTypes("standard input", self._types or {}, of_text=True)
            convert = partial(types.rows, header)
        return _Reader(self._rows, convert)


class _Reader(StatelessSourcePartition[Any, int]):
    def __init__(self, rows: StandardInput, convert: Callable[[Sequence[Any]], Iterable[Any]] | None) -> None:
        self._rows = rows
        self._convert = convert

    def poll(self) -> tuple[Any, int] | None:
        values, times = self.poll_batch(1)
        return (values[0], times[0]) if values else None

    def poll_batch(self, limit: int) -> tuple[Sequence[Any], Sequence[int]]:
        found = self._rows.rows(limit)
        values = found if self._convert is None else [*self._convert(found)]
        return values, [0] * len(values)

    def is_finished(self) -> bool:
        return self._rows.has_ended
