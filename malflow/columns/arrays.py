"""Arrays of Arrow: the types that columns have, and the Python objects of their items.

The objects are the same as by ``to_pylist``, made by the fastest way that there is for a type.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from malflow.errors import MalflowError

__all__ = [
    "UnreadableItem",
    "canonical",
    "compact",
    "from_compact",
    "from_ipc",
    "has_no_type",
    "in_microseconds",
    "in_years",
    "is_readable",
    "is_same",
    "is_text",
    "numbers_of",
    "to_ipc",
    "to_python",
]

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The days of Python's dates, 0001-01-01 to 9999-12-31, counted from 1970."""

_DAY = 86_400_000_000
"""The microseconds of a day."""

_DICTIONARIES = 32
"""How many dictionaries of texts are remembered: some for each open file, and few enough to hold little memory."""


class UnreadableItem(MalflowError, ValueError):
    """A column has an item that Python can't hold."""


def is_text(kind: pa.DataType) -> bool:
    """Whether items of a type are strings or bytes."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind))


def canonical(array: pa.Array) -> pa.Array:
    """Return an array with a type of the fewer that columns have.

    Strings and bytes have offsets of 32 bits, and so have the indices of dictionaries. The items stay the same.

    >>> canonical(pa.array(["Ulm"], pa.large_string())).type
    DataType(string)
    """
    kind = array.type
    if pa.types.is_run_end_encoded(kind):
        array = pc.run_end_decode(array)  # there is no cast
        kind = array.type
    wanted = _canonical_type(kind)
    if wanted == kind:
        return array
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid:  # more than 2 GiB of texts in one batch
        return array


def _canonical_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), _canonical_type(kind.value_type))
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_run_end_encoded(kind):
        return _canonical_type(kind.value_type)
    return kind


def numbers_of(array: pa.Array) -> np.ndarray[Any, Any] | None:
    """Return a view of numbers, or of times in the array's unit; None for another type, or with nulls.

    >>> numbers_of(pa.array([1, 2])), numbers_of(pa.array([1, None]))
    (array([1, 2]), None)
    """
    kind, types = array.type, pa.types
    if array.null_count:
        return None
    numbers: np.ndarray[Any, Any] | None = None
    if types.is_integer(kind) or types.is_float64(kind) or types.is_float32(kind):
        numbers = array.to_numpy()
    elif types.is_timestamp(kind):
        numbers = array.view(pa.int64()).to_numpy()
    return numbers


def to_python(array: pa.Array, name: str = "") -> list[Any]:
    """Return the items as Python objects.

    Args:
        array: the array.
        name: the name of the column, for the error.

    Raises:
        UnreadableItem: if Python can't hold an item.
    """
    try:
        return _python(array, name)
    except (pa.ArrowException, ValueError, OverflowError, LookupError) as error:
        faults = ((at, _fault_of(array[at])) for at in range(len(array)))
        at, fault = next(((at, fault) for at, fault in faults if fault is not None), (0, error))
        raise UnreadableItem(
            f"column '{name}' ({array.type}) has a value in row {at} of {len(array)} that Python can't hold: {fault}; "
            "leave the column out, as by columns= of the source or .select_columns()"
        ) from fault


def is_readable(array: pa.Array) -> bool:
    """Whether Python can hold all items, as far as that is cheap to see: texts, and times of the years 1 to 9999."""
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        return is_readable(array.dictionary)
    if types.is_string(kind):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True
    if types.is_timestamp(kind) or types.is_date32(kind):
        found = array.drop_null()
        if types.is_date32(kind):
            return in_years(found.view(pa.int32()).to_numpy().astype(np.int64) * _DAY)
        return kind.unit in ("s", "ms") or in_years(found.view(pa.int64()).to_numpy())
    return True


def _fault_of(item: pa.Scalar) -> Exception | None:
    """Return the error with which an item can't be read."""
    try:
        item.as_py()
    except (pa.ArrowException, ValueError, OverflowError, LookupError) as error:
        return error
    return None


def _python(array: pa.Array, name: str) -> list[Any]:
    kind, types = array.type, pa.types
    items: list[Any]
    if types.is_dictionary(kind):
        return _of_dictionary(array, name) if is_text(kind.value_type) else _python(array.dictionary_decode(), name)
    if not array.null_count and (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        items = array.to_numpy(zero_copy_only=False).tolist()
        return items
    if types.is_string(kind) or types.is_binary(kind):
        items = array.to_numpy(zero_copy_only=False).tolist()
        return items
    if not array.null_count and len(array):
        if types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"):
            stamps = array.view(pa.int64()).to_numpy()
            if stamps.min() >= _FIRST_DAY * _DAY and stamps.max() < (_LAST_DAY + 1) * _DAY:
                items = stamps.view("datetime64[us]").tolist()
                zone = None if kind.tz is None else _zone_of(kind)
                return items if zone is None else [moment.replace(tzinfo=zone) for moment in items]
        elif types.is_date32(kind):
            days = array.view(pa.int32()).to_numpy()
            if days.min() >= _FIRST_DAY and days.max() <= _LAST_DAY:
                items = days.astype("datetime64[D]").tolist()
                return items
    items = array.to_pylist()
    return items


def has_no_type(kind: pa.DataType) -> bool:
    """Whether a type is that of nulls, or of lists of nulls: no item has shown its type.

    >>> has_no_type(pa.null()), has_no_type(pa.list_(pa.null())), has_no_type(pa.int64())
    (True, True, False)
    """
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return has_no_type(kind.value_type) if is_list else bool(pa.types.is_null(kind))


def in_microseconds(kind: pa.DataType) -> pa.DataType | None:
    """Return a type with nanoseconds replaced by microseconds; None if it has no nanoseconds.

    >>> in_microseconds(pa.timestamp("ns")), in_microseconds(pa.int64())
    (TimestampType(timestamp[us]), None)
    """
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pa.types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if pa.types.is_struct(kind):
        exact = [in_microseconds(field.type) for field in kind]
        if any(exact):
            return pa.struct([f if e is None else f.with_type(e) for f, e in zip(kind, exact, strict=True)])
    return _items_in_microseconds(kind)


def _items_in_microseconds(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_map(kind):
        key, item = in_microseconds(kind.key_type), in_microseconds(kind.item_type)
        return pa.map_(key or kind.key_type, item or kind.item_type) if key or item else None
    if not (pa.types.is_nested(kind) or pa.types.is_dictionary(kind)) or kind.num_fields > 1:
        return None
    if pa.types.is_union(kind):
        return None
    inner = None if pa.types.is_struct(kind) else in_microseconds(kind.value_type)
    if inner is None or pa.types.is_dictionary(kind):
        return inner
    field = kind.value_field.with_type(inner)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(field, kind.list_size)
    return pa.large_list(field) if pa.types.is_large_list(kind) else pa.list_(field)


def in_years(stamps: np.ndarray[Any, Any]) -> bool:
    """Whether microseconds since 1970 are all in Python's years 1 to 9999."""
    return not len(stamps) or bool(stamps.min() >= _FIRST_DAY * _DAY and stamps.max() < (_LAST_DAY + 1) * _DAY)


def _zone_of(kind: pa.DataType) -> Any:
    """Return the object for the zone UTC that Arrow gives to datetimes."""
    found = pa.scalar(0, kind).as_py().tzinfo
    return UTC if found is None else found


_TEXTS: OrderedDict[str, tuple[pa.Array, list[Any]]] = OrderedDict()
"""The dictionary met last of each column, by its name, and the items of it. Each batch of a file has its own copy."""


def _of_dictionary(array: pa.DictionaryArray, name: str) -> list[Any]:
    """Return the items of a dictionary array; equal texts are one object, also in the batches that follow."""
    dictionary = array.dictionary
    held = _TEXTS.get(name)
    if held is None or not (len(held[0]) == len(dictionary) and held[0].equals(dictionary)):
        if len(dictionary) > len(array) or dictionary.null_count:
            return _python(array.dictionary_decode(), name)
        try:
            items = _python(dictionary, name)
        except (pa.ArrowException, ValueError):  # perhaps no row uses an invalid text
            return _python(array.dictionary_decode(), name)
        if held is not None:
            before = dict(zip(held[1], held[1], strict=True))
            items = [before.get(item, item) for item in items]
        held = _TEXTS[name] = dictionary, items
        while len(_TEXTS) > _DICTIONARIES:
            _TEXTS.popitem(last=False)
    items = held[1]
    if array.indices.null_count:
        return [None if at is None else items[at] for at in array.indices.to_pylist()]
    return list(map(items.__getitem__, array.indices.to_numpy().tolist()))


def is_same(one: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays are the same items in memory; equal items elsewhere do not count."""
    if one.type != other.type or len(one) != len(other) or one.offset != other.offset:
        return False
    if pa.types.is_dictionary(one.type) and not is_same(one.dictionary, other.dictionary):
        return False
    return _addresses(one) == _addresses(other)


def _addresses(array: pa.Array) -> list[int]:
    return [0 if buffer is None else buffer.address for buffer in array.buffers()]


def to_ipc(columns: Sequence[pa.Array]) -> bytes:
    """Return columns as one stream of Arrow, with their own items only.

    Arrow's pickle of a slice would hold all items of the array from which it was cut.
    """
    return _stream(pa.record_batch(list(map(_without_unused, columns)), names=[""] * len(columns)))


def from_ipc(data: bytes) -> list[pa.Array]:
    """Return the columns of a stream by `to_ipc`."""
    columns: list[pa.Array] = pa.ipc.open_stream(data).read_next_batch().columns
    return columns


def compact(batch: pa.RecordBatch) -> bytes:
    """Return a batch as one stream of Arrow, with its schema and its own items only."""
    columns = [it if (own := _without_unused(it)) is it else own.cast(it.type) for it in batch.columns]
    return _stream(pa.record_batch(columns, schema=batch.schema))


def from_compact(data: bytes) -> pa.RecordBatch:
    """Return the batch of a stream by `compact`."""
    return pa.ipc.open_stream(data).read_next_batch()


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _without_unused(array: pa.Array) -> pa.Array:
    """Return an array without its parent's items: those in a dictionary, and all of a slice without rows."""
    if not len(array):
        return pa.array([], array.type)
    if not pa.types.is_dictionary(array.type) or len(array.dictionary) <= len(array):
        return array
    return canonical(array.dictionary_decode().dictionary_encode())
