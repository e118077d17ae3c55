"""A source that reads CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from itertools import islice, repeat
from typing import Any, Self

from malflow.checks import check_flag, checked_names
from malflow.connectors.files.csv_dialect import Dialect, fault_in_fields
from malflow.connectors.files.lines import ByteBuffer, LineBuffer, split_keeping_ends
from malflow.connectors.files.listing import OnReplaced
from malflow.connectors.files.parser import ColumnsParser, OnError, Parsed, RecordParser, Schema
from malflow.connectors.files.partitions import FolderValues, Partitions
from malflow.connectors.files.paths import Path
from malflow.connectors.files.renamed import OnRenamed
from malflow.connectors.files.source import FileSource
from malflow.connectors.files.typed import DELIMITERS, FieldError, RecordTypes, Types
from malflow.durations import Duration
from malflow.errors import GraphError

__all__ = ["CsvSource"]

_ROWS_AT_ONCE = 256
"""Rows converted to dicts at a time, while they are still in the CPU cache."""

_REASONS = {
    "unexpected end of data": "a quote is opened and not closed",
    "new-line character": "a carriage return outside quotes",
    "field larger": "a field longer than csv.field_size_limit()",
}
"""Reasons for the csv module's errors, by the first words of its messages."""


class CsvSource(FileSource[Any]):
    r"""Emit each row of CSV files as a dict by field name, with its index in the file from 0 as timestamp.

    Values are strings, unless `types` are given. Quoted fields keep their delimiters and line breaks. Blank lines are
    skipped. If there are field names, a row must have as many fields. After a quoting error, only the line where the
    row starts counts as bad, and reading continues with the next line. Everything else (files, keys, growing files) is
    as in `TextFileSource`.

    Args:
        path: a path, URL or glob, or several; each file is a part. A path that ends with a slash is a folder: its files
            are read, except for hidden ones (``.`` or ``_``) and subfolders. ``.gz`` and the like are decompressed.
        header: whether the first row has the field names; by default it does unless `fields` are passed. Without
            header and `fields`, a row is a list of any length.
        fields: the field names; they override a header.
        types: the types of fields: a dict such as ``{"people": int}``, or a dataclass; rows are converted to instances
            of it; columns that it lacks are dropped. ``int | None`` reads an empty field as None; a function is called
            with the text. A row with a value of another type is bad.
        schema: a `pyarrow.Schema`: a row is then a dict of the schema's fields, as Arrow converts their texts; other
            columns are dropped. An empty field is None unless it is text. The records stay columns, and are converted
            many at a time. Text without quotes is also split by Arrow, in a tenth of the time.
        delimiter: the character between fields.
        quotechar: the character around a field that contains delimiters, quotes or line breaks; None for no quoting.
        encoding: the text encoding (a superset of ASCII).
        on_error: how to handle a row that cannot be read or has too few or too many fields: ``"fail"`` with a
            `BadRecord`, ``"skip"`` and count it, ``"dead_letter"`` to keep its text, or call a function with the
            `BadRecord` and count it; or an `OnError` with one of these words. An invalid header always raises.
        on_replaced: how to handle a file that, when a run resumes, no longer holds the bytes read before:
            ``"fail"``, or ``"restart"`` to read the new file from the beginning.
        on_renamed: how to handle a file that has another name when a run resumes, as after log rotation: read on
            after what was read (``"continue"``), ``"fail"``, or ``"restart"`` to read it as a new file.
        storage_options: options for the file system, such as credentials.
        in_order: whether a worker reads its files one after the other, in the order of the paths and, for a glob, of
            their names. With event time, files not yet started then do not hold back the epoch (watermark).
        discover_every: how often to look for new files. The run then ends only when it is stopped.
        partitions: columns from the names of folders, such as ``day=2024-05-01``: their types, as in
            ``{"day": date, "region": str}``, or True for all folders, as text; False silences the warning of such
            folders. A path that ends with a slash then has the files of these folders too.

    Raises:
        GraphError: if an argument is invalid, or a name in `fields` is empty or duplicate.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/towns.csv", b"name,people\nUlm,130000\n")
    >>> CsvSource("memory://towns.csv").build_part("memory://towns.csv", None).poll()
    ({'name': 'Ulm', 'people': '130000'}, 0)
    >>> typed = CsvSource("memory://towns.csv", types={"people": int})
    >>> typed.build_part("memory://towns.csv", None).poll()
    ({'name': 'Ulm', 'people': 130000}, 0)
    >>> fsspec.filesystem("memory").rm("/towns.csv")
    """

    def __init__(
        self,
        path: Path | Iterable[Path],
        *,
        header: bool | None = None,
        fields: Sequence[str] | None = None,
        types: Types | None = None,
        schema: Schema | None = None,
        delimiter: str = ",",
        quotechar: str | None = '"',
        encoding: str = "utf-8",
        on_error: OnError = "fail",
        on_replaced: OnReplaced = "fail",
        on_renamed: OnRenamed = "continue",
        storage_options: Mapping[str, Any] | None = None,
        in_order: bool = False,
        discover_every: Duration | None = None,
        partitions: Partitions | None = None,
    ) -> None:
        if schema is not None and (types is not None or partitions):
            raise GraphError("CsvSource takes schema= without types= and partitions=; a schema has the types of fields")
        self._types = None if types is None else RecordTypes("CsvSource", types, of_text=True)
        self._columns = None if schema is None else _columns_of(schema)
        self.emits_columns = schema is not None
        super().__init__(
            path,
            encoding=encoding,
            on_error=on_error,
            on_replaced=on_replaced,
            on_renamed=on_renamed,
            storage_options=storage_options,
            in_order=in_order,
            discover_every=discover_every,
            partitions=partitions,
        )
        check_flag("CsvSource", "header", header, optional=True)
        self._dialect = Dialect("CsvSource", delimiter, quotechar)
        self._fields = None if fields is None else _checked_fields(fields)
        self._header = fields is None if header is None else header
        if (self._types is not None or self._columns is not None) and not self._header:
            fault = "no field name" if self._fields is None else self._fault_in_types(self._fields)
            if fault is not None:
                raise GraphError(f"CsvSource cannot convert to types: there is {fault}; pass fields=[...]")
        if partitions and self._fields is None and not self._header:
            raise GraphError("CsvSource cannot add partitions to rows without field names; pass fields=[...]")
        fault = self._partitions.collision(self._fields or ())
        if fault is not None:
            raise GraphError(f"CsvSource partitions: {fault}")

    def _fault_in_types(self, fields: Sequence[str]) -> str | None:
        if self._columns is not None:
            return _lacking(fields, self._columns)
        if self._types is None or self._partitions.follow_folders:
            return None
        return self._types.missing(fields, self._partitions.names)

    def reading(self, fields: frozenset[str]) -> Self:
        """Return a source that converts only these fields, if it has a schema with them."""
        source = copy(self)
        source._tally = self._tally  # noqa: SLF001 - `skipped` of the user's object counts
        source._columns = None if self._columns is None else self._columns.reading(fields)  # noqa: SLF001 - of this class
        return source

    def _new_parser(self, more: FolderValues) -> RecordParser[Any]:
        if self._columns is not None:
            return _CsvColumnsParser(self._dialect, self._fields, self._header, more, self._columns)
        return _CsvParser(self._dialect, self._fields, self._header, self._types, more)


def _columns_of(schema: Any) -> Any:
    from malflow.columns.csv_rows import CsvColumns  # noqa: PLC0415 - only the extra has it

    return CsvColumns("CsvSource", schema)


def _lacking(fields: Sequence[str], columns: Any) -> str | None:
    """Return why rows with these fields do not have all columns; None if they do."""
    name = next((name for name in columns.schema.names if name not in fields), None)
    return None if name is None else f"no field {name!r}, which is in schema; the fields are {', '.join(fields)}"


def _checked_fields(fields: Sequence[str]) -> tuple[str, ...]:
    names = checked_names("CsvSource", "fields", fields)
    if fault := fault_in_fields(names):
        raise GraphError(f"CsvSource fields has {fault}; got {fields!r}")
    return names


class _UnevenRows(Exception):
    """A row has too few or too many fields."""


class _CsvParser(RecordParser[Any]):
    def __init__(
        self,
        dialect: Dialect,
        fields: tuple[str, ...] | None,
        has_header: bool,
        types: RecordTypes | None,
        more: FolderValues,
    ) -> None:
        self.header = fields
        self._fields = fields
        self._dialect = dialect
        self._has_header = has_header
        self._types = types
        self._more = more
        self._values = list(more.values.values())

    def split(self, text: str) -> list[str]:
        return split_keeping_ends(text)

    def parse_header(self, lines: LineBuffer, at: int) -> Parsed | None:
        if not self._has_header:
            return None
        parsed = self._parse_row(lines, at)
        if parsed.blank or parsed.reason is not None:
            return parsed
        names = tuple(parsed.value)
        if self._fields is None:
            self.header = names
            reason = fault_in_fields(names) or self._more.collision(names) or self._fault_in_types(names)
            return parsed._replace(reason=reason)
        if len(names) == len(self._fields):
            return parsed._replace(reason=self._fault_in_types(self._fields))
        return parsed._replace(reason=f"{len(names)} fields in the header, expected {len(self._fields)}")

    def parse(self, lines: LineBuffer, limit: int) -> tuple[Sequence[Any], int] | None:
        reader = self._dialect.reader(lines.ahead(lines.next))
        records: list[Any] = []
        try:
            for start in range(0, limit, _ROWS_AT_ONCE):
                rows = list(islice(reader, min(_ROWS_AT_ONCE, limit - start)))
                if not rows:
                    break
                records += self._records_of(rows)
        except (csv.Error, _UnevenRows, FieldError):
            return None
        return records, reader.line_num

    def _records_of(self, rows: list[list[str]]) -> Iterable[Any]:
        widths = set(map(len, rows))
        if 0 in widths:
            rows = list(filter(None, rows))
            widths.remove(0)
        if self.header is None:
            return rows
        if widths - {len(self.header)}:
            raise _UnevenRows
        if self._types is not None:
            return self._types.rows(self.header, rows, self._more.values)
        if self._values:
            names, values = (*self.header, *self._more.values), self._values
            return map(dict, map(zip, repeat(names), [row + values for row in rows]))
        return map(dict, map(zip, repeat(self.header), rows))

    def doubt(self, first: Any) -> str | None:
        names = self.header or tuple(first)
        mark = next(
            (it for it in DELIMITERS if len(names) == 1 and it in names[0] and it != self._dialect.delimiter), None
        )
        return mark and f"has one field, {names[0]!r}; pass delimiter={mark!r} if it separates fields"

    def _fault_in_types(self, names: Sequence[str]) -> str | None:
        return None if self._types is None else self._types.missing(names, self._more.values)

    def parse_one(self, lines: LineBuffer, at: int) -> Parsed:
        parsed = self._parse_row(lines, at)
        if parsed.blank or parsed.reason is not None or self.header is None:
            return parsed
        if len(parsed.value) != len(self.header):
            return parsed._replace(reason=f"{len(parsed.value)} fields, expected {len(self.header)}")
        try:
            (record,) = self._records_of([parsed.value])
        except FieldError as error:
            return parsed._replace(reason=str(error))
        return parsed._replace(value=record)

    def _parse_row(self, lines: LineBuffer, at: int) -> Parsed:
        reader = self._dialect.reader(lines.ahead(at))
        try:
            row = next(reader)
        except csv.Error as error:
            return Parsed(at + 1, reason=_reason(error))
        end = at + reader.line_num
        if any("\0" in line for line in lines.lines[at:end]):
            return Parsed(end, reason="a NUL character")
        return Parsed(end, row, blank=not row)


class _CsvColumnsParser(ColumnsParser, _CsvParser):
    """Parses rows as columns.

    Args:
        dialect: the delimiter and the quotes.
        fields: the field names that override a header.
        has_header: whether the first row has the field names.
        more: the values in the names of folders, of which there are none.
        columns: converts the rows.
    """

    def __init__(
        self, dialect: Dialect, fields: tuple[str, ...] | None, has_header: bool, more: FolderValues, columns: Any
    ) -> None:
        ColumnsParser.__init__(self)
        _CsvParser.__init__(self, dialect, fields, has_header, None, more)
        self._columns = columns

    def _fault_in_types(self, names: Sequence[str]) -> str | None:
        return _lacking(names, self._columns)

    def _parsed(self, lines: ByteBuffer, most: int) -> tuple[Sequence[Any], int]:
        data, taken = lines.take(most)
        names, quote = self.header or (), self._dialect.quotechar
        if quote is None or quote.encode() not in data:
            found = self._columns.of_text(data, names, self._dialect.delimiter)
            if found is not None:
                return found, taken
        if b"\0" in data:
            raise ValueError("a NUL character")
        reader = self._dialect.reader(lines.ahead(lines.next))
        try:
            rows = list(filter(None, islice(reader, taken)))
        except csv.Error as error:
            raise ValueError(_reason(error)) from None
        return self._columns.of_rows(rows, names) if rows else [], reader.line_num

    def _records_of(self, rows: list[list[str]]) -> Iterable[Any]:
        try:
            return [self._columns.of_rows(rows, self.header)[0]]
        except ValueError as error:
            raise FieldError(str(error)) from None


def _reason(error: csv.Error) -> str:
    said = str(error)
    return next((reason for words, reason in _REASONS.items() if said.startswith(words)), said)
