"""Values and timestamps from Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from malflow.checks import check_choice, check_function, checked_names
from malflow.columns import Column, Frame
from malflow.columns.arrays import UnreadableItem, in_microseconds, is_readable, to_python
from malflow.columns.row_classes import fields_of, record_fields
from malflow.errors import GraphError
from malflow.records.rows import Rows
from malflow.words import did_you_mean, plural

__all__ = ["Nanoseconds", "Row", "RowMaker", "RowOptions", "Timestamp", "UnreadableColumn", "row_options", "too_fine"]

Row: TypeAlias = str | Callable[..., Any]
"""The type of a record: `dict`, `tuple`, a function of the columns' values, or the name of one column."""

Timestamp: TypeAlias = str | Callable[[Any], Any] | None
Nanoseconds: TypeAlias = Literal["fail", "truncate"]


class UnreadableColumn(Exception):
    """A column can't be converted to Python values; the message does not name the file."""


@dataclass(frozen=True, slots=True)
class RowOptions:
    """The options by which a columnar source builds records.

    Attributes:
        columns: the columns of a record, in order; None for all.
        row: see `Row`.
        timestamp: a column, a function of the value, or None for the index of the row.
        nanoseconds: the handling of times that Python can't represent exactly.
        fields: the columns that are read of dicts, if the dataflow shows that no others are; None for all of them.
    """

    columns: tuple[str, ...] | None
    row: Row
    timestamp: Timestamp
    nanoseconds: Nanoseconds
    fields: frozenset[str] | None = None

    @property
    def stay_columns(self) -> bool:
        """Whether records stay columns, as nothing is called with a row."""
        is_plain = self.row in (dict, tuple) or isinstance(self.row, str) or record_fields(self.row) is not None
        return is_plain and (self.timestamp is None or isinstance(self.timestamp, str))

    def reading(self, fields: frozenset[str]) -> RowOptions:
        """Return options for dicts of which only some fields are read; the same for other records."""
        stamped = self.timestamp is None or isinstance(self.timestamp, str)
        return replace(self, fields=fields) if self.row is dict and stamped else self


def row_options(
    asked_by: str, columns: Sequence[str] | None, row: Row, timestamp: Timestamp, nanoseconds: Nanoseconds
) -> RowOptions:
    """Check the options of records.

    Raises:
        GraphError: if one is not valid.
    """
    check_choice(asked_by, "nanoseconds", nanoseconds, ("fail", "truncate"))
    if not isinstance(row, str):
        check_function(asked_by, "row", row, or_else=("the name of a column",))
    if timestamp is not None and not isinstance(timestamp, str):
        check_function(asked_by, "timestamp", timestamp, or_else=("the name of a column",))
    if columns is None:
        return RowOptions(None, row, timestamp, nanoseconds)
    names = checked_names(asked_by, "columns", columns)
    if not names:
        raise GraphError(f"{asked_by} columns must have one column or more; got []")
    if isinstance(row, str) and row not in names:
        raise GraphError(
            f"{asked_by} row is the column {row!r}, which is not in columns={list(names)!r}; leave columns out"
        )
    return RowOptions(names, row, timestamp, nanoseconds)


class RowMaker:
    """Build the records of batches of one schema.

    Args:
        options: the options of records.
        schema: the schema of the file or table.
        constants: columns that the file does not have; their value is the same in all rows.

    Attributes:
        reads: the names of the required columns.

    Raises:
        UnreadableColumn: if a column is missing, or its name is used twice.
    """

    def __init__(
        self, options: RowOptions, schema: pa.Schema, constants: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self._options = options
        self._constants = constants
        single = isinstance(options.row, str)
        everything = (*schema.names, *constants)
        names = (options.row,) if single else options.columns if options.columns is not None else everything
        fields = options.fields
        self._is_whole = fields is None or not fields.issubset(names) or fields.issuperset(names)
        if not self._is_whole:  # a field that is missing is an error of its reader, which names all others
            names = tuple(name for name in names if name in (fields or ()))
        stamped = [options.timestamp] if isinstance(options.timestamp, str) else []
        self.reads: list[str] = [name for name in dict.fromkeys([*names, *stamped]) if name not in constants]
        for name in self.reads:
            _check_one(name, schema)
        self._names = list(names)
        self._exact = {name: in_microseconds(schema.field(name).type) for name in self.reads}
        self._columns = fields_of(options.row, self._names)
        self._combine = _combiner(options.row, self._names)

    def make(self, batch: pa.RecordBatch, indices: Sequence[int]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the values and timestamps of a batch, given the indices of its rows.

        Values are a `Frame`, unless a function makes the records: it is called here, once for each.

        Raises:
            UnreadableColumn: if Python cannot represent a value, or a timestamp is null.
        """
        values = self._values(batch)
        timestamp = self._options.timestamp
        if timestamp is None:
            return values, indices
        if not isinstance(timestamp, str):
            return values, [timestamp(value) for value in values]
        if timestamp in self._constants:
            times: Sequence[Any] = [self._constants[timestamp]] * len(indices)
        else:
            times = Column(self._exactly(batch, timestamp))
            times = times if times.is_sound() else self._to_python(batch, timestamp)
        if not isinstance(times, Column) and None in times:
            at = indices[times.index(None)]
            raise UnreadableColumn(
                f"has no timestamp in row {at}: column '{timestamp}' is null there; exclude such rows by "
                f"filter=pc.field({timestamp!r}).is_valid(), or pass a function as timestamp"
            )
        return values, times

    def _values(self, batch: pa.RecordBatch) -> Sequence[Any]:
        if self._columns is None or not all(_is_kept(value) for value in self._constants.values()):
            return self._combine([self._to_python(batch, name) for name in self._names], batch.num_rows)
        columns = [self._column(batch, name) for name in self._names]
        for name, column in zip(self._names, columns, strict=True):
            if name not in self._constants and not is_readable(column):
                self._to_python(batch, name)  # it raises the error
        row = self._options.row
        return Frame(pa.record_batch(columns, names=self._columns), row, is_whole=self._is_whole)

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if name not in self._constants:
            return self._exactly(batch, name)
        value = pa.array([self._constants[name]])
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows), value)

    def _exactly(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """Return a column with microseconds in place of nanoseconds."""
        column, exact = batch.column(name), self._exact[name]
        if exact is None:
            return column
        plain = column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
        try:
            return plain.cast(exact, safe=self._options.nanoseconds == "fail")
        except pa.ArrowInvalid as error:
            raise UnreadableColumn(too_fine(name)) from error

    def _to_python(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        if name in self._constants:
            return [self._constants[name]] * batch.num_rows
        column = self._exactly(batch, name)
        try:
            return to_python(column)
        except UnreadableItem as error:
            raise UnreadableColumn(
                f"has a value in column '{name}' ({column.type}) that Python can't hold: {error.__cause__}; name the "
                "columns to read in columns="
            ) from error.__cause__


def _is_kept(value: Any) -> bool:
    """Whether Arrow keeps a value of a folder's name unchanged."""
    try:
        (again,) = pa.array([value]).to_pylist()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return type(again) is type(value) and bool(again == value)


def too_fine(name: str) -> str:
    """Return the problem of a column with times that Python can't represent."""
    return (
        f"has times in column '{name}' with a fraction of a microsecond, which Python's datetime can't hold; pass "
        "nanoseconds='truncate' to cut it off"
    )


def _check_one(name: str, schema: pa.Schema) -> None:
    count = len(schema.get_all_field_indices(name))
    if count == 1:
        return
    if count:
        raise UnreadableColumn(f"has {plural(count, 'column')} named '{name}'; name others in columns=, or rename them")
    raise UnreadableColumn(f"has no column '{name}'{did_you_mean(name, schema.names)}")


def _combiner(row: Row, names: list[str]) -> Callable[[list[list[Any]], int], Sequence[Any]]:
    """Return a function that builds the records from columns and the number of rows."""
    if isinstance(row, str):
        return lambda columns, _: columns[0]
    if not names:
        return lambda _, count: [_call(row) for _ in range(count)]
    if row is tuple:
        return lambda columns, _: list(zip(*columns, strict=True))
    if row is dict:
        return lambda columns, _: Rows(dict(zip(names, columns, strict=True)))
    return lambda columns, _: [_call(row, *values) for values in zip(*columns, strict=True)]


def _call(row: Any, *values: Any) -> Any:
    return row(*values)
