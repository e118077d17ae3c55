"""A sink that writes CSV."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from malflow.checks import check_flag, checked_names
from malflow.connectors.files.csv_dialect import Dialect, fault_in_fields
from malflow.connectors.files.headed import HeadedLines
from malflow.connectors.files.sinks import LineSink, UnwritableValue
from malflow.connectors.lost_output import OnDataLoss
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.sinks.formatting import Formatter
from malflow.sinks.transactional import Delivery
from malflow.type_parameters import K, T, V
from malflow.words import plural

__all__ = ["CsvSink"]

_TEXTS: dict[type[Any], Callable[[Any], str]] = {
    int: int.__repr__,
    float: float.__repr__,
    bool: lambda value: "true" if value else "false",
    Decimal: str,
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    UUID: str,
}
"""The texts of values; subclasses have the same ones."""

_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


class CsvSink(LineSink[K, V, T]):
    r"""Write each message as a row of CSV, as RFC 4180 has it, in UTF-8 and with ``\n`` after each row.

    A record is a dict, a dataclass or a named tuple, or a list or tuple of the values in order. It must have each field
    and no other. Values are texts, numbers, truths (``true``, ``false``), dates, times (ISO 8601), UUIDs, and members
    of an Enum by their value. A float has the digits with which it is read as the same one. None is written as nothing
    and an empty text as ``""``, so readers that look at quotes can tell them apart; in a table of one field, both are
    ``""``, since an empty line is not a row. Other values are refused: convert them in `formatter`.

    Each file has the header once. Folders, visibility, failed runs and resumed runs are as in `TextFileSink`. A file
    that is resumed or appended to must have the same header.

    Args:
        path: a path or URL; ``.gz`` and the like are compressed. A missing local directory is created. A path that ends
            with a slash is a folder.
        fields: the names of the fields, in order; by default the names in the first record. Pass them if records have
            their fields in different orders, since a resumed run may begin with another record.
        header: whether to write the names of the fields.
        delimiter: the character between fields.
        quotechar: the character around a field that contains delimiters, quotes or line breaks; None to refuse such
            fields.
        append: whether to append to an existing file (local files only). By default a run without a persistence
            replaces it, with a warning; a run that resumes continues it.
        formatter: returns the record to write for a message; by default its value.
        suffix: for a folder, the suffix of the files' names, such as ``".csv.gz"``; ``".csv"`` by default.
        delivery: for a folder, ``"exactly-once"`` by default, or ``"at-least-once"``: a file becomes visible at each
            snapshot and at the end of the run, and a run that resumes writes the records since the snapshot again.
        storage_options: options for the file system, such as credentials.
        retry_for: for a folder, how long the run waits for an unreachable object store; a minute by default.
        on_data_loss: for a folder, ``"fail"`` (the default) or ``"continue"`` if the ledger lacks a committed
            transaction, for example since the folder was restored from a backup or deleted.
        on_workers: for a folder, whether the workers write the files, on Spark; all machines must then reach it; True
            by default. If False, the driver does.

    Raises:
        GraphError: if an argument is invalid.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from malflow import DataMessage
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     sink = CsvSink(f"{directory}/out.csv")
    ...     sink.sink(DataMessage("Ulm", {"town": "Ulm, Donau", "people": 130_000}, 0))
    ...     sink.close()
    ...     Path(directory, "out.csv").read_text()
    'town,people\n"Ulm, Donau",130000\n'
    """

    _suffix = ".csv"

    def __init__(  # noqa: PLR0913 - all of them a user's
        self,
        path: str | os.PathLike[str],
        *,
        fields: Sequence[str] | None = None,
        header: bool = True,
        delimiter: str = ",",
        quotechar: str | None = '"',
        append: bool = False,
        formatter: Formatter | None = None,
        suffix: str | None = None,
        delivery: Delivery | None = None,
        storage_options: Mapping[str, Any] | None = None,
        retry_for: Duration | None = None,
        on_data_loss: OnDataLoss | None = None,
        on_workers: bool | None = None,
    ) -> None:
        super().__init__(
            path,
            append=append,
            formatter=formatter,
            suffix=suffix,
            delivery=delivery,
            storage_options=storage_options,
            retry_for=retry_for,
            on_data_loss=on_data_loss,
            on_workers=on_workers,
        )
        check_flag("CsvSink", "header", header)
        self._dialect = Dialect("CsvSink", delimiter, quotechar)
        self._has_header = header
        self._fields = None if fields is None else checked_names("CsvSink", "fields", fields)
        if self._fields is not None and (fault := fault_in_fields(self._fields)):
            raise GraphError(f"CsvSink fields has {fault}; got {fields!r}")
        quote = quotechar or ""
        self._marks = tuple(mark for mark in (delimiter, quotechar, "\n", "\r") if mark)
        self._quote, self._twice = quote, quote * 2

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Write a batch of records. If one cannot be written, the records before it are still written.

        Raises:
            UnwritableValue: if a value cannot be written.
        """
        lines: list[bytes] = []
        try:
            self._write_down(lines, keys, values, timestamps)
        finally:
            if lines:
                self._output.write_headed(self._headed(lines))

    def encode(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> Any:
        """Return the rows of a batch of records, with the header of their file.

        Raises:
            UnwritableValue: if a value cannot be written.
        """
        lines: list[bytes] = []
        self._write_down(lines, keys, values, timestamps)
        return self._headed(lines)

    def _headed(self, lines: list[bytes]) -> HeadedLines:
        header = self._row(self._fields, self._fields) if self._has_header and self._fields else b""
        return HeadedLines(header, b"".join(lines))

    def _line(self, value: Any) -> bytes:
        row = self._values(value)
        if not row:
            raise UnwritableValue(self._path, value, "it has no fields, and an empty line is not a row")
        return self._row(row, value)

    def _values(self, record: Any) -> Sequence[Any]:
        """Return the values of a record in the order of the fields."""
        named = _by_field(record)
        if named is None:
            if not isinstance(record, list | tuple):
                problem = "a row is a dict, a dataclass, a named tuple, or a list of the values"
                raise UnwritableValue(self._path, record, problem)
            if self._fields is None and self._has_header:
                raise UnwritableValue(self._path, record, "its fields have no names; pass fields=[...] or header=False")
            if self._fields is not None and len(record) != len(self._fields):
                raise UnwritableValue(
                    self._path,
                    record,
                    f"it has {plural(len(record), 'value')} for {plural(len(self._fields), 'field')}",
                )
            return record
        if self._fields is None:
            self._fields = self._first_fields(named, record)
        if len(named) != len(self._fields) or not all(name in named for name in self._fields):
            odd = sorted(map(repr, {*named}.symmetric_difference(self._fields)))
            raise UnwritableValue(self._path, record, f"it lacks {odd[0]}, or has it beyond the fields of the file")
        return [named[name] for name in self._fields]

    def _first_fields(self, named: Mapping[Any, Any], record: Any) -> tuple[str, ...]:
        names = tuple(named)
        if not all(isinstance(name, str) for name in names) or (fault_in_fields(names) and names):
            raise UnwritableValue(self._path, record, "the name of a field must be a text that is not empty")
        return names

    def _row(self, values: Sequence[Any], record: Any) -> bytes:
        texts = [self._text(value, record) for value in values]
        if texts == [""]:
            texts = [self._twice] if self._quote else texts
        if texts == [""]:
            raise UnwritableValue(self._path, record, "an empty line is not a row; pass quotechar")
        try:
            return f"{self._dialect.delimiter.join(texts)}\n".encode()
        except UnicodeEncodeError as error:
            raise UnwritableValue(self._path, record, f"{error.reason} in utf-8") from error

    def _text(self, value: Any, record: Any) -> str:
        if value is None:
            return ""
        if type(value) is str:
            return self._quoted(value, record)
        if isinstance(value, Enum):
            return self._text(value.value, record)
        if isinstance(value, str):
            return self._quoted(str.__str__(value), record)
        plain = _python_scalar(value)
        if type(plain) is str:
            return self._quoted(plain, record)
        kind = next((it for it in type(plain).__mro__ if it in _TEXTS), None)
        if kind is not None and (kind is not datetime or plain == plain):  # noqa: PLR0124 - NaT of pandas
            return self._quoted(_TEXTS[kind](plain), record)
        raise UnwritableValue(self._path, record, f"CSV has no {type(value).__name__}")

    def _quoted(self, text: str, record: Any) -> str:
        """Return a text in quotes, if it needs them."""
        if "\0" in text:
            raise UnwritableValue(self._path, record, "it contains a NUL character")
        quote = self._quote
        if text and not any(mark in text for mark in self._marks) and not text.startswith(_BOM):
            return text
        if quote:
            return f"{quote}{text.replace(quote, self._twice)}{quote}"
        if text:
            raise UnwritableValue(self._path, record, f"{text!r} needs quotes; pass quotechar")
        return text


def _python_scalar(value: Any) -> Any:
    """Return a scalar of numpy or pandas as Python's own; a point in time as its text, with the nanoseconds."""
    if getattr(value, "nanosecond", None):
        return value.isoformat() if value == value else value  # noqa: PLR0124 - NaT
    if getattr(value, "shape", None) != () or not hasattr(value, "dtype") or hasattr(value, "__setitem__"):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # item() would drop NUL at the end
    if value.dtype.kind == "M" and value == value:  # noqa: PLR0124 - NaT
        return str(value)
    return value if value.dtype.kind in "mM" else value.item()


def _by_field(record: Any) -> Mapping[Any, Any] | None:
    """Return the values of a record by the names of its fields; None if they have no names."""
    if isinstance(record, Mapping):
        return record
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    if isinstance(record, tuple) and hasattr(record, "_asdict"):
        named: Mapping[Any, Any] = record._asdict()
        return named
    return None
