"""Arrow columns from Python values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import pyarrow as pa

from malflow.connectors.parquet.fidelity import first_changed
from malflow.errors import MalflowError
from malflow.words import listed, plural, short_repr

__all__ = ["Columns", "UnfitRow", "stored_type"]

_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type with which Parquet stores another; dictionaries get large indices, as they grow with the file.

    Raises:
        ValueError: if Parquet can't store it.
    """
    if pa.types.is_struct(kind) and not kind.num_fields:
        raise ValueError("Parquet has no struct without fields")
    if pa.types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), kind.value_type, kind.ordered)
    for index in range(kind.num_fields):
        stored_type(kind.field(index).type)
    return kind


class UnfitRow(MalflowError, ValueError):
    """A value that can't be a row of a table.

    Attributes:
        target: the table.
        column: the column, or None if the row as a whole is at fault.
        value: the row.
    """

    refuses_records = True

    def __init__(self, target: str, column: str | None, value: object, reason: str) -> None:
        where = "" if column is None else f" in column '{column}'"
        super().__init__(f"'{target}' cannot store {short_repr(value)}{where}: {reason}")
        self.target = target
        self.column = column
        self.value = value
        self.reason = reason


class Columns:
    """Build batches of one schema from dicts, dataclasses, named tuples, or (with a given schema) tuples.

    Args:
        target: the table, for errors.
        schema: its schema; None to infer it from the first rows.
        stored: returns the type with which a table stores an inferred type, or raises a ValueError if it can't.

    Attributes:
        schema: the schema; None until it is inferred.
    """

    def __init__(
        self, target: str, schema: pa.Schema | None, stored: Callable[[pa.DataType], pa.DataType] | None = None
    ) -> None:
        self.schema = schema
        self._target = target
        self._stored = stored
        self._given = schema is not None

    def make(self, values: Sequence[Any]) -> pa.RecordBatch:
        """Return a batch of one row for each value.

        Raises:
            UnfitRow: if a value does not fit the schema.
        """
        first = values[0]
        plain = type(first) is tuple and self._given
        if not plain and set(map(type, values)) != {dict}:
            values = [self._row(value) for value in values]
        names = self._names(values) if self.schema is None else self.schema.names
        columns = self._by_place(values, names) if plain else self._by_name(values, names)
        if self.schema is None:
            self.schema = pa.schema([self._field(*it, values) for it in zip(names, columns, strict=True)])
        arrays = [self._array(field, column, values) for field, column in zip(self.schema, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def make_columns(self, names: Sequence[str], columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """Return a batch with the columns of the schema; errors show the values of one column.

        Raises:
            UnfitRow: if a value does not fit the schema.
        """
        if self.schema is None:
            self.schema = pa.schema(
                [self._field(name, column, column) for name, column in zip(names, columns, strict=True)]
            )
        fields = zip(self.schema, columns, strict=True)
        return pa.RecordBatch.from_arrays([self._array(*it, values=it[1]) for it in fields], schema=self.schema)

    def _row(self, value: Any) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value if type(value) is dict else dict(value)  # a defaultdict or Counter has every column
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            row: Mapping[str, Any] = value._asdict()
            return row
        raise UnfitRow(
            self._target,
            None,
            value,
            "a row is a dict, a dataclass, a named tuple, or a tuple if schema= is passed; pass formatter=lambda msg: "
            "{...}",
        )

    def _by_place(self, values: Sequence[Any], names: list[str]) -> Iterable[Sequence[Any]]:
        for value in values:
            if not isinstance(value, tuple) or len(value) != len(names):
                raise UnfitRow(
                    self._target, None, value, f"the schema has {plural(len(names), 'column')}: {listed(names)}"
                )
        return zip(*values, strict=True)

    def _by_name(self, values: Sequence[Any], names: list[str]) -> Iterable[Sequence[Any]]:
        try:
            if names and set(map(len, values)) == {len(names)}:
                return [list(map(itemgetter(name), values)) for name in names]
        except (KeyError, TypeError):
            pass
        known = set(names)
        for value in values:
            row = self._row(value)
            for name in row:
                if name not in known:
                    raise UnfitRow(self._target, str(name), row, f"there is no such column; {self._mend()}")
        return [[value.get(name) for value in values] for name in names]

    def _array(self, field: pa.Field, column: Sequence[Any], values: Sequence[Any]) -> pa.Array:
        try:
            array = pa.array(column, field.type, from_pandas=False)
        except _REFUSALS as error:
            index = _first_unfit(column, lambda value: pa.array([value], field.type, from_pandas=False))
            raise UnfitRow(
                self._target, field.name, values[index], f"it is not {field.type} ({error}); {self._mend()}"
            ) from error
        if array.null_count and not field.nullable:
            index = next(index for index, value in enumerate(column) if value is None)
            raise UnfitRow(self._target, field.name, values[index], "it is null, but the column is not nullable")
        if isinstance(array, pa.ChunkedArray):
            raise UnfitRow(self._target, field.name, values[0], "the texts of a batch exceed 2 GiB; use large_string")
        changed = first_changed(array, column, encodes=self._given)
        if changed is not None:
            at, stored = changed
            reason = f"{field.type} would hold {short_repr(stored)} instead; {self._mend()}"
            raise UnfitRow(self._target, field.name, values[at], reason)
        return array

    def _names(self, values: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the names of all columns, in the order in which they come."""
        names = list(dict.fromkeys(chain.from_iterable(values)))
        if not names:
            raise UnfitRow(self._target, None, values[0], "it has no columns; pass schema=")
        for name in names:
            if not isinstance(name, str):
                raise UnfitRow(self._target, None, values[0], f"the name of a column is a text; got {name!r}")
        return names

    def _field(self, name: str, column: Sequence[Any], values: Sequence[Any]) -> pa.Field:
        """Return the field of a column. Its type follows from its values."""
        try:
            kind = pa.array(column, from_pandas=False).type
            return pa.field(name, kind if self._stored is None else self._stored(kind))
        except _REFUSALS as error:
            index = _first_unfit_prefix(column)
            reason = f"its type does not follow from the values ({error}); pass schema="
            raise UnfitRow(self._target, name, values[index], reason) from error

    def _mend(self) -> str:
        if self._given and self.schema is not None:
            return f"the schema has {listed(self.schema.names)}"
        return "the schema was inferred from the first rows; pass schema="


def _first_unfit(column: Sequence[Any], convert: Callable[[Any], object]) -> int:
    for index, value in enumerate(column):
        try:
            convert(value)
        except _REFUSALS:
            return index
    return 0


def _first_unfit_prefix(column: Sequence[Any]) -> int:
    """Return the index of the first value that does not fit those before it."""
    low, high = 1, len(column)
    while low < high:
        middle = (low + high) // 2
        try:
            pa.array(column[:middle], from_pandas=False)
            low = middle + 1
        except _REFUSALS:
            high = middle
    return low - 1
