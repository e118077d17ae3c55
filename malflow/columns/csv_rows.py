"""Rows of CSV as columns of Arrow."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from copy import copy
from io import StringIO
from math import isinf

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from malflow.columns.arrays import is_readable
from malflow.columns.frame import Frame
from malflow.columns.texts import checked_schema, only_read
from malflow.errors import GraphError
from malflow.words import short_repr

__all__ = ["CsvColumns"]

_BOM = b"\xef\xbb\xbf"


class CsvColumns:
    """Convert rows of CSV to columns with a schema.

    Args:
        asked_by: the name of the source, for errors.
        schema: the names and types of the fields.

    Raises:
        GraphError: if `schema` is not a schema, or has a type that CSV can't be read as.
    """

    def __init__(self, asked_by: str, schema: pa.Schema) -> None:
        self.schema = checked_schema(asked_by, schema)
        self._is_whole = True
        try:
            self._table(b"", schema.names, ",")
        except pa.ArrowNotImplementedError as error:
            raise GraphError(f"{asked_by} can't read CSV with this schema: {error}") from None

    def reading(self, fields: frozenset[str]) -> CsvColumns:
        """Return a converter of only these fields, if the schema has them; what others hold is not looked at."""
        schema = only_read(self.schema, fields)
        if schema is None:
            return self
        columns = copy(self)
        columns.schema, columns._is_whole = schema, False  # noqa: SLF001 - of this class
        return columns

    def of_text(self, data: bytes, names: Sequence[str], delimiter: str) -> Frame | None:
        """Return the rows of a text in UTF-8 in which no character is a quote; None if it must be split by `csv`.

        Raises:
            ValueError: if a row does not fit the schema, or has another number of fields.
        """
        if data.startswith(_BOM):  # Arrow drops it, wherever the text begins in its file
            return None
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        if (
            not data.strip(b"\n")
            or b"\r" in data
            or b"\0" in data
            or not delimiter.isascii()
            or _longest_line(data) > csv.field_size_limit()
        ):
            return None
        if not data.isascii():
            data.decode()
        found = self._frame(data, names, delimiter)
        return None if self._infinite(found) else found

    def of_rows(self, rows: Sequence[Sequence[str]], names: Sequence[str]) -> Frame:
        """Return rows of texts as columns.

        Raises:
            ValueError: if a row does not fit the schema, or has another number of fields.
        """
        text = StringIO()
        csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
        found = self._frame(text.getvalue().encode(), names, None)
        for name in self._infinite(found):
            at = names.index(name)
            too_large = next((row[at] for row in rows if _is_too_large(row[at])), None)
            if too_large is not None:
                raise ValueError(f"field '{name}' is too large: {short_repr(too_large)}")
        return found

    def _infinite(self, frame: Frame) -> list[str]:
        """Return the columns of floats with an infinity. Its text may be a number that is too large."""
        batch = frame.batch
        floating = [field.name for field in self.schema if pa.types.is_floating(field.type)]
        return [name for name in floating if batch is not None and pc.any(pc.is_inf(batch.column(name))).as_py()]

    def _frame(self, data: bytes, names: Sequence[str], delimiter: str | None) -> Frame:
        try:
            table = self._table(data, names, delimiter)
        except pa.ArrowException as error:
            raise ValueError(f"it does not fit the schema: {error}") from None
        columns = []
        for field, column in zip(self.schema, table.columns, strict=True):
            array = column.combine_chunks()
            if array.null_count and not field.nullable:
                raise ValueError(f"field '{field.name}' is empty, but the schema says that it is not nullable")
            if pa.types.is_temporal(field.type) and not is_readable(array):
                raise ValueError(f"field '{field.name}' has a time outside the years 1 to 9999")
            columns.append(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array)
        return Frame(pa.record_batch(columns, names=self.schema.names), is_whole=self._is_whole)

    def _table(self, data: bytes, names: Sequence[str], delimiter: str | None) -> pa.Table:
        reading = pcsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=list(names))
        parsing = pcsv.ParseOptions(
            delimiter=delimiter or ",",
            quote_char='"' if delimiter is None else False,
            newlines_in_values=delimiter is None,
        )
        converting = pcsv.ConvertOptions(
            column_types=self.schema, include_columns=self.schema.names, null_values=[""], strings_can_be_null=False
        )
        if not data:  # an empty text has no columns for Arrow
            reading.block_size, data = 1 << 10, b",".join([b""] * len(names)) + b"\n"
            return pcsv.read_csv(pa.BufferReader(data), reading, pcsv.ParseOptions(), converting).slice(0, 0)
        return pcsv.read_csv(pa.BufferReader(data), reading, parsing, converting)


def _is_too_large(text: str) -> bool:
    try:
        return isinf(float(text)) and "inf" not in text.lower()
    except ValueError:
        return False


def _longest_line(data: bytes) -> int:
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    return int(np.diff(ends, prepend=-1, append=len(data)).max())
