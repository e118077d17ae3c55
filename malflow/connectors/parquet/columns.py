"""Arrow columns from Python values, each checked to hold the original values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from malflow.columns.arrays import to_python
from malflow.errors import MalflowError
from malflow.words import listed, plural, short_repr

__all__ = [
    "Columns",
    "UnfitRow",
    "first_changed",
    "stored_type",
]

_COMPARED = (int, float, Decimal, date, time, timedelta)
_BYTES = (bytes, bytearray, memoryview)
_NONE = type(None)

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARIES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)


def first_changed(array: pa.Array, column: Sequence[Any], *, encodes: bool = False) -> tuple[int, Any] | None:
    """Return the index of the first value that a column has changed, and the changed value; None if none has changed.

    Args:
        array: the column.
        column: the original values.
        encodes: whether a column of bytes may hold texts in UTF-8, as its schema says.

    >>> first_changed(pa.array([1, 2.5], pa.int64()), [1, 2.5])
    (1, 2)
    """
    kinds = set(map(type, column))
    if encodes and _is_binary(array.type):
        kinds.discard(str)
    if kinds <= _kept_kinds(array.type) and not _overflows(array):
        zoned = datetime in kinds and pa.types.is_timestamp(array.type)
        return _first_of_other_zone(array.type, column) if zoned else None
    stored = _stored(array)
    return next(
        (
            (at, stored[at])
            for at, value in enumerate(column)
            if not _is_kept(value, stored[at], array.type, encodes=encodes)
        ),
        None,
    )


def _stored(array: pa.Array) -> list[Any]:
    """Return the values of a column for Python; those that Python lacks, such as the year 0, as Arrow's scalars."""
    try:
        values: list[Any] = array.to_pylist()
    except (ValueError, OverflowError):
        return [_python(scalar) for scalar in array]
    return values


def _python(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar


def _kept_kinds(kind: pa.DataType) -> set[type]:
    """Return the Python types that a column either rejects or keeps unchanged."""
    if pa.types.is_decimal(kind) or (pa.types.is_primitive(kind) and not pa.types.is_temporal(kind)):
        return _kept_numbers(kind)
    if pa.types.is_timestamp(kind) and kind.unit in ("us", "ns"):
        return {datetime, _NONE}
    if pa.types.is_date32(kind):
        return {date, _NONE}
    if pa.types.is_nested(kind) or pa.types.is_temporal(kind):
        return {_NONE}
    if _is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
        return {str, _NONE}
    if _is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return {bytes, _NONE}
    return {_NONE}


def _kept_numbers(kind: pa.DataType) -> set[type]:
    if pa.types.is_boolean(kind):
        return {bool, _NONE}
    if pa.types.is_integer(kind):
        return {int, _NONE}
    if pa.types.is_float16(kind):  # the only float type that rounds integers
        return {_NONE}
    return {int, float, _NONE} if pa.types.is_floating(kind) else {int, Decimal, _NONE}


def _is_text(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in _TEXTS)


def _is_binary(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in _BINARIES)


def _overflows(array: pa.Array) -> bool:
    """Whether a column of small floats has an infinity. It may have been a number."""
    return bool(pa.types.is_float32(array.type) and pc.any(pc.is_inf(array)).as_py())


def _first_of_other_zone(kind: pa.DataType, column: Sequence[Any]) -> tuple[int, Any] | None:
    """Return the first time with a zone in a column without one, or the reverse."""
    wants = kind.tz is not None
    for at, value in enumerate(column):
        if value is not None and (value.tzinfo is not None) != wants:
            return at, f"a time {'with' if wants else 'without'} time zone"
    return None


def _is_kept(value: Any, stored: Any, kind: pa.DataType, *, encodes: bool) -> bool:
    if value is None or stored is None:
        return value is stored
    if pa.types.is_nested(kind) and isinstance(value, (*_BYTES, str)):
        return False  # Arrow takes empty ones for a list
    if pa.types.is_struct(kind):
        fields = value if isinstance(value, dict) else _of_pairs(value)
        return (bool(fields) or fields is value) and all(
            name in stored and _is_kept(inner, stored[name], kind.field(name).type, encodes=encodes)
            for name, inner in fields.items()
        )
    if pa.types.is_map(kind):
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        return len(pairs) == len(stored) and all(
            _is_kept(key, held_key, kind.key_type, encodes=encodes)
            and _is_kept(item, held, kind.item_type, encodes=encodes)
            for (key, item), (held_key, held) in zip(pairs, stored, strict=True)
        )
    if pa.types.is_nested(kind):
        return len(value) == len(stored) and all(
            _is_kept(inner, held, kind.value_type, encodes=encodes) for inner, held in zip(value, stored, strict=True)
        )
    return _is_same(value, stored, encodes=encodes)


def _of_pairs(value: Any) -> dict[Any, Any]:
    """Return the fields of a struct with a list of pairs as its value; Arrow takes None for a pair, too."""
    return dict(value) if all(isinstance(it, tuple) for it in value) else {}


def _is_same(value: Any, stored: Any, *, encodes: bool) -> bool:
    """Whether a stored value is that of its origin, and of the same kind: Arrow makes numbers of all that has any."""
    if getattr(value, "dtype", None) is not None and value.dtype.kind in "mM":
        return _is_same_numpy_time(value, stored)
    if isinstance(stored, str | bytes):
        return _is_same_text(value, stored, encodes=encodes)
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
        value = value.item()  # a scalar of numpy
    if isinstance(value, bool) or isinstance(stored, bool):
        return value is stored
    if isinstance(stored, float):
        return _is_same_float(value, stored)
    if isinstance(stored, UUID):
        return bool(stored in (value, UUID(bytes=value) if isinstance(value, bytes) else None))
    if isinstance(value, datetime) and isinstance(stored, datetime):
        return _is_same_instant(value, stored)
    return isinstance(value, _COMPARED) and bool(value == stored)


def _is_same_text(value: Any, stored: str | bytes, *, encodes: bool) -> bool:
    if isinstance(value, str):
        return str.__eq__(value, stored) if isinstance(stored, str) else encodes
    if isinstance(stored, str) or not isinstance(value, _BYTES):
        return False
    return bytes.__eq__(value, stored) if isinstance(value, bytes) else bytes(value) == stored


def _is_same_float(value: Any, stored: float) -> bool:
    """Whether a stored number equals the original, except for rounding."""
    if isinstance(value, int):
        return value == stored
    return isinstance(value, float | Decimal) and math.isinf(stored) == math.isinf(value)


def _is_same_instant(value: datetime, stored: datetime) -> bool:
    """Whether two points in time are one; Python never calls those equal that are in a fold of different zones."""
    if value == stored:
        return True
    here, there = value.utcoffset(), stored.utcoffset()
    if here is None or there is None or hasattr(value, "nanosecond") or hasattr(stored, "nanosecond"):
        return False
    return value.replace(tzinfo=None) - stored.replace(tzinfo=None) == here - there


def _is_same_numpy_time(value: Any, stored: Any) -> bool:
    kinds = date if value.dtype.kind == "M" else timedelta
    if not isinstance(stored, kinds) or getattr(stored, "tzinfo", None) is not None:
        return False
    return bool(value == type(value)(getattr(stored, "asm8", stored)))


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

    def cast(self, batch: pa.RecordBatch, rows: Sequence[Any]) -> pa.RecordBatch:
        """Return a batch with the columns of the schema, as `make` would of its rows; without one, with its own.

        Columns stay columns: no row is made but one for an error. Dictionaries become their values, unless the schema
        has a dictionary.

        Args:
            batch: the columns.
            rows: the same records as rows.

        Raises:
            UnfitRow: if a value does not fit the schema.
        """
        given = dict(zip(batch.schema.names, map(_decoded, batch.columns), strict=True))
        if not given and self.schema is None:
            raise UnfitRow(self._target, None, rows[0], "it has no columns; pass schema=")
        if self.schema is None:
            self.schema = pa.schema([self._own_field(name, it.type, rows) for name, it in given.items()])
        unknown = next((name for name in given if name not in self.schema.names), None)
        if unknown is not None:
            raise UnfitRow(self._target, unknown, rows[0], f"there is no such column; {self._mend()}")
        nothing = pa.nulls(batch.num_rows)
        arrays = [self._cast(field, given.get(field.name, nothing), rows) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _cast(self, field: pa.Field, array: pa.Array, rows: Sequence[Any]) -> pa.Array:
        found = _exactly(array, field.type)
        if found is None:
            return self._array(field, to_python(array, field.name), rows)
        if found.null_count and not field.nullable:
            self._array(field, found.to_pylist(), rows)  # it raises the error
        return found

    def _own_field(self, name: str, kind: pa.DataType, rows: Sequence[Any]) -> pa.Field:
        try:
            return pa.field(name, kind if self._stored is None else self._stored(kind))
        except ValueError as error:
            raise UnfitRow(
                self._target, name, rows[0], f"its column can't be stored ({error}); pass schema="
            ) from error

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


def _decoded(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _exactly(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return a column with another type, as if made of its Python values; None if only these can tell.

    A cast is tried where it refuses whatever `first_changed` would find. Then the values decide about the refusal.
    """
    types, own = pa.types, array.type
    if own == kind:
        return array
    if types.is_dictionary(kind):
        plain = _exactly(array, kind.value_type)
        return None if plain is None or types.is_nested(kind.value_type) else plain.dictionary_encode().cast(kind)
    is_same_kind = any(
        all(any(is_one(it) for is_one in group) for it in (own, kind))
        for group in (_TEXTS, _BINARIES, (types.is_integer, types.is_float32, types.is_float64))
    )
    if not (types.is_null(own) or (is_same_kind and not (types.is_floating(own) and types.is_integer(kind)))):
        return None
    try:
        found = array.cast(kind)
    except pa.ArrowException:
        return None
    return None if _overflows(found) else found


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
