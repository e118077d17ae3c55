"""Objects as columns: one flat row for each value, with its fields, its key and its timestamp."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from malflow.columns.arrays import canonical, has_no_type
from malflow.columns.frame import Frame
from malflow.columns.objects import UnfitItem, array_of, array_of_column
from malflow.columns.row_classes import MadeRows
from malflow.records.batch import Batch
from malflow.records.columnar import is_columnar
from malflow.windows import WindowResult
from malflow.words import did_you_mean, error_text, listed, short_repr

__all__ = ["FlatRows", "fields_of_value", "frame_like", "like_of", "types_of"]

_VALUE = "value"
"""The column of a value without fields, and how the names of the columns of a tuple begin."""


class FlatRows:
    """Makes columns of batches, all with one schema.

    Args:
        schema: the columns and their types; None to take them from the first batch.
        key: the name of a column for the key; None for none.
        timestamp: the name of a column for the timestamp; None for none.
    """

    def __init__(self, schema: pa.Schema | None, key: str | None, timestamp: str | None) -> None:
        self._names = None if schema is None else [name for name in schema.names if name not in (key, timestamp)]
        self._types: dict[str, pa.DataType] = {} if schema is None else {it.name: it.type for it in schema}
        self._required = () if schema is None else [it.name for it in schema if not it.nullable]
        self._is_stated = schema is not None
        self._order = None if schema is None else schema.names
        self._key, self._timestamp = key, timestamp

    def frame_of(self, batch: Batch) -> Frame:
        """Return the values of a batch as columns.

        Raises:
            UnfitItem: if a value does not fit.
            ValueError: if a name comes twice.
        """
        held = batch.values
        found = _columns_of(held) if is_columnar(held) else None
        columns = self._of_objects(batch.values) if found is None else self._of_columns(found)
        for name, items in ((self._key, batch.keys), (self._timestamp, batch.timestamps)):
            if name is not None and items is not None:
                if name in columns:
                    raise ValueError(
                        f"two columns have the name {name!r}: the rows have {listed(columns)}; pass another name for "
                        "the key or the timestamp"
                    )
                columns[name] = self._typed(name, array_of_column(items, name))
        if not columns:
            raise ValueError("its values have no fields, so there is no column")
        names = [*columns] if self._order is None else [*self._order, *(it for it in columns if it not in self._order)]
        return Frame(pa.record_batch([columns[name] for name in names], names=names))

    def _of_columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        names = batch.schema.names
        self._check_names(names, names, 0)
        return {name: self._typed(name, batch.column(names.index(name))) for name in self._names or ()}

    def _of_objects(self, values: Sequence[Any]) -> dict[str, pa.Array]:
        rows = [fields_of_value(value, at) for at, value in enumerate(values)]
        self._check_names([*rows[0]], rows[0], 0)
        names = self._names or []
        for at, row in enumerate(rows):
            if row.keys() != rows[0].keys():
                self._check_names([*row], row, at)
        columns = {}
        for name in names:
            kind = self._types.get(name) if self._is_stated else None
            columns[name] = self._typed(name, array_of([row[name] for row in rows], name, kind))
        return columns

    def _check_names(self, names: Sequence[str], row: object, at: int) -> None:
        """Check that a row has the columns of the first row.

        Raises:
            UnfitItem: if not.
        """
        if self._names is None:
            self._names = [*names]
        missing = next((name for name in self._names if name not in names), None)
        if missing is not None:
            hint = did_you_mean(missing, names) or f"; it has {listed(names)}"
            raise UnfitItem(f"the value has no field '{missing}'{hint}; {_ALL}", at)
        odd = next((name for name in names if name not in self._names), None)
        if odd is not None and not self._is_stated:
            raise UnfitItem(
                f"the value has a field '{odd}', and earlier ones have only {listed(self._names)}; {_ALL}", at
            )

    def _typed(self, name: str, array: pa.Array) -> pa.Array:
        """Return a column with the type of this name: the stated one, or that of the first batch.

        Raises:
            UnfitItem: if it has another one, or nulls where the schema has none.
        """
        if name in self._required and array.null_count:
            at = array.is_null().index(True).as_py()
            raise UnfitItem(f"column '{name}' is None, and schema= says that it never is", at)
        due = self._types.get(name)
        if due is None or (not self._is_stated and has_no_type(due)):
            self._types[name] = array.type
            return array
        if array.type == due or (not self._is_stated and _item_type(array.type) == _item_type(due)):
            return array
        if not self._is_stated and not has_no_type(array.type):
            raise UnfitItem(
                f"column '{name}' is {array.type}, and was {due} before; convert it by .map() first, or pass schema=",
                array.is_valid().index(True).as_py(),
            )
        try:
            return canonical(array.cast(due))
        except pa.ArrowException as error:
            at = _first_unfit(array, due)
            raise UnfitItem(f"column '{name}' does not fit its type in schema=, {due}: {error}", at) from error


def _first_unfit(array: pa.Array, due: pa.DataType) -> int:
    """Return the index of the first item that can't be cast to a type; 0 if each of them can alone."""
    for at in range(len(array)):
        try:
            array.slice(at, 1).cast(due)
        except pa.ArrowException:
            return at
    return 0


def _item_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of items, whether a dictionary holds them or not: keys of one operator come in both forms."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


_ALL = "all values need the same fields; add what is missing by .map() first"


def _columns_of(values: Any) -> pa.RecordBatch | None:
    """Return the columns of flat rows; None if the values must be read."""
    batch = values.batch
    if batch is None:
        return None
    if isinstance(values.row, str):
        return pa.record_batch([batch.column(values.row)], names=[_VALUE])
    if values.row is tuple:
        return batch.rename_columns([f"{_VALUE}_{at}" for at in range(batch.num_columns)])
    if isinstance(values.row, MadeRows):
        return batch if values.row.is_flat else None
    return batch if isinstance(values.row, type) else None


def fields_of_value(value: Any, at: int = 0) -> dict[str, Any]:
    """Return the fields of a value as a flat row has them.

    Args:
        value: the value.
        at: its position in its batch, for the error.

    Raises:
        UnfitItem: if two fields have one name, or one is not a text.

    >>> from malflow.message import Timing
    >>> fields_of_value(WindowResult(0, 60, (3, 4.5), Timing.FINAL))
    {'start': 0, 'end': 60, 'value_0': 3, 'value_1': 4.5}
    >>> fields_of_value({"town": "Ulm"}), fields_of_value(7)
    ({'town': 'Ulm'}, {'value': 7})
    """
    if type(value) is WindowResult:
        inner = fields_of_value(value.value, at)
        twice = next((name for name in ("start", "end") if name in inner), None)
        if twice is not None:
            raise UnfitItem(f"two columns have the name '{twice}': of the window, and of its result; rename one", at)
        return {"start": value.start, "end": value.end, **inner}
    if isinstance(value, Mapping):
        odd = next((name for name in value if not isinstance(name, str)), None)
        if odd is not None:
            raise UnfitItem(f"the value has an item {short_repr(odd)}; the names of columns are texts", at)
        return value if type(value) is dict else dict(value)
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None) or [f"{_VALUE}_{place}" for place in range(len(value))]
        return dict(zip(names, value, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {it.name: getattr(value, it.name) for it in dataclasses.fields(value)}
    if (names := getattr(type(value), "__struct_fields__", None)) is not None:
        return {name: getattr(value, name) for name in names}
    held = getattr(value, "__dict__", None)
    return held if isinstance(held, dict) and held else {_VALUE: value}


def frame_like(rows: Sequence[Any], like: tuple[pa.Schema, Any] | None) -> Frame:
    """Return rows that were made of columns as columns again.

    Args:
        rows: the rows.
        like: the schema and the rows of a frame with the same columns; None to find their types in the rows.

    Raises:
        UnfitItem: if a row does not fit.
    """
    if like is None:
        return FlatRows(None, None, None).frame_of(Batch(None, rows, range(len(rows))))
    schema, kind = like
    columns = []
    for place, field in enumerate(schema):
        items = []
        for at, row in enumerate(rows):
            try:
                items.append(_item(row, kind, field.name, place))
            except (LookupError, AttributeError, TypeError) as error:
                raise UnfitItem(f"the value has no field '{field.name}': {error_text(error)}", at) from error
        columns.append(array_of(items, field.name, field.type))
    return Frame(pa.record_batch(columns, names=schema.names), kind)


_ROW = b"malflow.row"
"""The name of the kind of rows in the metadata of a schema."""


def types_of(schema: pa.Schema, row: Any) -> bytes:
    """Return the types of columns, and the kind of their rows, as they are stored with a dead letter."""
    kind = "item" if isinstance(row, str) else row.__name__ if row in (dict, tuple) else "object"
    return bytes(schema.with_metadata({_ROW: kind}).serialize())


def like_of(types: bytes, row: Any) -> tuple[pa.Schema, Any]:
    """Return the schema of columns and the kind of their rows, from `types_of` and one of the rows."""
    schema = pa.ipc.read_schema(pa.py_buffer(types))
    kinds = {b"dict": dict, b"tuple": tuple, b"item": schema.names[0]}
    return schema.remove_metadata(), kinds.get(schema.metadata[_ROW], type(row))


def _item(row: Any, kind: Any, name: str, place: int) -> Any:
    if kind is tuple:
        return row[place]
    if isinstance(kind, str):
        return row
    return row[name] if isinstance(row, Mapping) else getattr(row, name)
