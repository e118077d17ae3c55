"""Schemas as Delta tables store them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = ["delta_schema", "delta_type", "fitted"]

_WIDTHS: Final = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_IS_TEXT: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_IS_BINARY: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_IS_LIST: Final = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_SAME: Final = (pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_decimal128, pa.types.is_date32)
_COMPUTED: Final = (b"delta.generationExpression", b"delta.identity.start")


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the types with which a table stores it.

    Raises:
        ValueError: if a column can't be in a table.
    """
    lowered: set[str] = set()
    fields = []
    for field in schema:
        if field.name.lower() in lowered:
            raise ValueError(f"column '{field.name}' twice, apart from the case of letters, which Delta ignores")
        lowered.add(field.name.lower())
        try:
            fields.append(pa.field(field.name, delta_type(field.type), field.nullable))
        except ValueError as error:
            raise ValueError(f"column '{field.name}': {error}") from None
    return pa.schema(fields)


def delta_type(kind: pa.DataType) -> pa.DataType:
    """Return the type with which a table stores an Arrow type.

    Raises:
        ValueError: if a table can't store it.
    """
    types = pa.types
    if any(is_one(kind) for is_one in _SAME):
        return kind
    if types.is_unsigned_integer(kind):
        return _WIDTHS[kind.bit_width]
    if types.is_floating(kind):
        return pa.float32() if types.is_float16(kind) else kind
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_date64(kind):
        return pa.date32()
    if types.is_dictionary(kind):
        return delta_type(kind.value_type)
    for group, stored in ((_IS_TEXT, pa.string()), (_IS_BINARY, pa.binary())):
        if any(is_one(kind) for is_one in group):
            return stored
    return _nested(kind)


def _nested(kind: pa.DataType) -> pa.DataType:
    if any(is_one(kind) for is_one in _IS_LIST):
        return pa.list_(kind.value_field.with_type(delta_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(delta_type(kind.key_type), delta_type(kind.item_type))
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([field.with_type(delta_type(field.type)) for field in kind])
    if isinstance(kind, pa.BaseExtensionType) and any(is_one(kind.storage_type) for is_one in _IS_BINARY):
        return kind  # such as a UUID
    if pa.types.is_null(kind):
        raise ValueError("all values so far are null")
    raise ValueError(f"Delta has no {kind}")


def fitted(data: pa.Table, stored: pa.Schema, *, grows: bool) -> pa.Table:
    """Convert rows to the schema of a table that has changed or was created elsewhere; missing columns become null.

    deltalake itself casts without a check: 1.5 becomes 1 in a column of integers.

    Args:
        data: the rows.
        stored: the schema of the table.
        grows: whether rows may have columns that are not in the table.

    Raises:
        ValueError: if they don't fit.
    """
    data = data.cast(delta_schema(data.schema))
    for field in data.schema:
        if field.name not in stored.names:
            if grows:
                continue
            raise ValueError(f"has no column '{field.name}', which the records have")
        kept = stored.field(field.name).type
        if not _is_same(field.type, kept):
            raise ValueError(f"has column '{field.name}' as {kept}, and the records have it as {field.type}")
    for field in stored:
        if field.name not in data.schema.names and field.nullable and not _is_computed(field):
            data = data.append_column(field.name, pa.nulls(data.num_rows, delta_type(field.type)))
    return data


def _is_computed(field: pa.Field) -> bool:
    return any(name in (field.metadata or {}) for name in _COMPUTED)


def _is_same(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types are the same to Delta, regardless of nullability."""
    if isinstance(one, pa.BaseExtensionType):
        one = pa.binary()
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        names = [field.name for field in one]
        return names == [field.name for field in other] and all(
            _is_same(one.field(name).type, other.field(name).type) for name in names
        )
    if pa.types.is_map(one) and pa.types.is_map(other):
        return _is_same(one.key_type, other.key_type) and _is_same(one.item_type, other.item_type)
    if pa.types.is_list(one) and any(is_one(other) for is_one in _IS_LIST):
        return _is_same(one.value_type, other.value_type)
    try:
        stored = delta_type(other)
        return bool(one == (pa.binary() if isinstance(stored, pa.BaseExtensionType) else stored))
    except ValueError:  # this version of Delta has the type, but malflow does not write it
        return False
