"""Keys and timestamps of a batch as columns of Arrow or numpy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from malflow.columns.arrays import canonical, from_ipc, in_years, numbers_of, to_ipc, to_python
from malflow.records.column import BaseColumn, join_lists

__all__ = ["PYTHON_TYPES", "Column", "Constant", "flags", "join_columns", "joined_column", "places", "turns"]


class Column(BaseColumn):
    """Keys or timestamps of a batch, over an Arrow array or a numpy array of numbers.

    Args:
        data: the array. The items of a numpy array are numbers, or times of the type `kind`.
        kind: the Arrow type of the items of a numpy array; by default that of its numbers.

    Raises:
        TypeError: if it is another object.

    >>> column = Column(pa.array(["Ulm", "Bonn"]))
    >>> column[1], column, column[:1]
    ('Bonn', ['Ulm', 'Bonn'], ['Ulm'])
    """

    __slots__ = ("_array", "_kind", "_list", "_numbers")

    def __init__(self, data: pa.Array | np.ndarray[Any, Any], kind: pa.DataType | None = None) -> None:
        self._list: list[Any] | None = None
        self._array: pa.Array | None
        self._numbers: np.ndarray[Any, Any] | None
        if isinstance(data, np.ndarray) and data.ndim == 1:
            self._array, self._numbers = None, data
            self._kind = pa.from_numpy_dtype(data.dtype) if kind is None else kind
        else:
            if not isinstance(data, (pa.Array, pa.ChunkedArray)):
                raise TypeError(
                    "a column needs an array of pyarrow, or one of numpy with one dimension; got an object of type "
                    f"{type(data).__name__}"
                )
            self._array = canonical(data)
            self._numbers = numbers_of(self._array)
            self._kind = self._array.type

    @property
    def kind(self) -> pa.DataType:
        """The Arrow type of the items."""
        return self._kind

    @property
    def array(self) -> pa.Array:
        """The items as an Arrow array."""
        if self._array is None:
            plain = pa.array(self._numbers)
            self._array = plain if plain.type == self._kind else plain.view(self._kind)
        return self._array

    @property
    def numbers(self) -> np.ndarray[Any, Any] | None:
        """The items as numbers, or as times in the unit of their type, not to be written to; None if there are none."""
        return self._numbers

    def encoded(self) -> pa.DictionaryArray:
        """Return the items as indices and a dictionary. The dictionary stays: the next call returns it too."""
        if not pa.types.is_dictionary(self._kind):
            array = canonical(self.array.dictionary_encode())
            self._array, self._kind, self._numbers = array, array.type, None
        return self.array

    def tolist(self) -> list[Any]:
        """Return the items as Python objects."""
        if self._list is None:
            numbers = self._numbers
            is_plain = numbers is not None and not pa.types.is_temporal(self._kind)
            self._list = numbers.tolist() if is_plain and numbers is not None else to_python(self.array)
        return self._list

    def distinct(self) -> list[Any]:
        """Return the distinct items, and perhaps some more of the same types."""
        return to_python(self.encoded().dictionary)

    def kinds(self) -> set[type]:
        """Return the Python types of the items."""
        kind = self._kind.value_type if pa.types.is_dictionary(self._kind) else self._kind
        found = next((python for holds, python in PYTHON_TYPES if holds(kind)), None)
        if found is None or (self._array is not None and _has_nulls(self._array)):
            return set(map(type, self.tolist()))
        return {found} if len(self) else set()

    def is_sound(self) -> bool:
        """Whether all items are numbers but not NaN, or instants of Python with a fixed offset or none."""
        if self._numbers is None:
            return False
        if pa.types.is_timestamp(self._kind):
            return self._kind.unit == "us" and self._kind.tz in (None, "UTC") and in_years(self._numbers)
        return pa.types.is_integer(self._kind) or not bool(np.isnan(self._numbers).any())

    def unusable(self) -> list[int]:
        """Return the positions of the items that are None, or do not equal themselves."""
        if self._numbers is not None and self._numbers.dtype.kind != "f":
            return []
        array = self.array
        is_encoded = pa.types.is_dictionary(array.type)
        if not _has_nulls(array) and not pa.types.is_floating(array.type.value_type if is_encoded else array.type):
            return []
        array = array.dictionary_decode() if is_encoded else array
        found = array.is_null(nan_is_null=pa.types.is_floating(array.type)).to_numpy(zero_copy_only=False)
        at: list[int] = np.flatnonzero(found).tolist()
        return at

    def positions(self, wanted: Collection[Any]) -> list[int]:
        """Return the positions of the items that are among some."""
        array = self.array if pa.types.is_dictionary(self._kind) else self.array.dictionary_encode()
        codes = [code for code, item in enumerate(to_python(array.dictionary)) if item in wanted]
        if not codes:
            return []
        at: list[int] = np.flatnonzero(np.isin(array.indices.to_numpy(zero_copy_only=False), codes)).tolist()
        return at

    def select(self, mask: Sequence[Any]) -> Column:
        """Return the items with a true flag."""
        chosen = flags(mask)
        if self._numbers is not None:
            return Column(self._numbers[chosen], self._kind)
        return Column(self.array.filter(pa.array(chosen)))

    def pick(self, indices: Sequence[int]) -> Column:
        """Return the items at indices."""
        if self._numbers is not None:
            return Column(self._numbers[places(indices)], self._kind)
        return Column(self.array.take(pa.array(places(indices))))

    def __len__(self) -> int:
        return len(self._array) if self._numbers is None else len(self._numbers)  # type: ignore[arg-type] # one is

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, slice):
            if self._list is not None:
                return self._list[at]
            index = range(len(self))[at]
            if self._numbers is not None and not pa.types.is_temporal(self._kind):
                return self._numbers[index].item()
            return to_python(self.array.slice(index, 1))[0]
        start, stop, step = at.indices(len(self))
        if step != 1:
            return self.pick(range(start, stop, step))
        if self._numbers is not None:
            return Column(self._numbers[start:stop], self._kind)
        return Column(self.array.slice(start, max(0, stop - start)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _read_column, (to_ipc([self.array]),)


PYTHON_TYPES = (
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_boolean, bool),
    (pa.types.is_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_timestamp, datetime),
    (pa.types.is_date32, date),
)
"""The Python types of the items of Arrow's types."""


def _has_nulls(array: pa.Array) -> bool:
    """Whether an item is null. One may hide in a dictionary."""
    return bool(array.null_count) or (pa.types.is_dictionary(array.type) and bool(array.dictionary.null_count))


def _read_column(data: bytes) -> Column:
    return Column(*from_ipc(data))


class Constant(BaseColumn):
    """The same key for each record, such as the part of a source.

    >>> Constant("a", 3), Constant("a", 3)[1:]
    (['a', 'a', 'a'], ['a', 'a'])
    """

    __slots__ = ("_length", "value")

    def __init__(self, value: Any, length: int) -> None:
        self.value = value
        self._length = length

    def tolist(self) -> list[Any]:
        """Return a list of the value."""
        return [self.value] * self._length

    def distinct(self) -> list[Any]:
        """Return the value."""
        return [self.value]

    def kinds(self) -> set[type]:
        """Return the type of the value."""
        return {type(self.value)} if self._length else set()

    def is_sound(self) -> bool:
        """Whether it is an integer."""
        return type(self.value) is int

    def unusable(self) -> Sequence[int]:
        """Return all positions, or none."""
        is_usable = self.value is not None and self.value == self.value
        return () if is_usable else range(self._length)

    def positions(self, wanted: Collection[Any]) -> Sequence[int]:
        """Return all positions, or none."""
        return range(self._length) if self.value in wanted else ()

    def select(self, mask: Sequence[Any]) -> Constant:
        """Return it as often as there are true flags."""
        return Constant(self.value, int(np.count_nonzero(flags(mask))))

    def pick(self, indices: Sequence[int]) -> Constant:
        """Return it as often as there are indices."""
        return Constant(self.value, len(indices))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return repeat(self.value, self._length)

    def __getitem__(self, at: Any) -> Any:
        found = range(self._length)[at]
        return Constant(self.value, len(found)) if isinstance(found, range) else self.value

    def __reduce__(self) -> tuple[Any, ...]:
        return Constant, (self.value, self._length)


def flags(mask: Any) -> np.ndarray[Any, Any]:
    """Return flags, a sequence or an array, as an array of booleans."""
    if isinstance(mask, np.ndarray):
        return mask if mask.dtype == np.bool_ else mask.astype(np.bool_)
    if isinstance(mask, bytes):
        return np.frombuffer(mask, np.uint8).astype(np.bool_)
    return np.fromiter(map(bool, mask), np.bool_, len(mask))


def places(indices: Any) -> np.ndarray[Any, Any]:
    """Return indices, a sequence or an array, as an array."""
    if isinstance(indices, range):
        return np.arange(indices.start, indices.stop, indices.step)
    return indices if isinstance(indices, np.ndarray) else np.asarray(indices, np.int64)


@lru_cache(maxsize=64)
def turns(lengths: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the order that takes one record from each part in turn, as indices of the parts one after the other.

    >>> turns((3, 1, 2)).tolist()
    [0, 3, 4, 1, 5, 2]
    """
    if len(set(lengths)) == 1:
        return np.arange(sum(lengths)).reshape(len(lengths), -1).T.ravel()
    at = np.concatenate([np.arange(length) for length in lengths])
    return np.argsort(at.astype(np.uint16) if max(lengths) <= 1 << 16 else at, kind="stable")


def join_columns(parts: Sequence[Sequence[Any]], *, in_turn: bool) -> Sequence[Any]:
    """Join keys or timestamps of several batches; as a column if their items have one type, otherwise as a list.

    >>> join_columns([range(2), range(5, 8)], in_turn=True)
    [0, 5, 1, 6, 7]
    """
    order = turns(tuple(map(len, parts))) if in_turn and len(parts) > 1 else None
    joined = joined_column(parts)
    if joined is not None:
        return joined if order is None else joined.pick(order)  # type: ignore[arg-type] # as indices
    items = join_lists(parts, in_turn=False)
    return items if order is None else list(map(items.__getitem__, order.tolist()))


def joined_column(parts: Sequence[Sequence[Any]]) -> Column | Constant | None:
    """Return the items of several columns as one, in their order; None if it can't hold them."""
    constants = [part for part in parts if isinstance(part, Constant)]
    if len(constants) == len(parts):
        value = constants[0].value
        if all(type(it.value) is type(value) and it.value == value for it in constants):
            return Constant(value, sum(map(len, constants)))
    columns = [column for part in parts if (column := _as_column(part)) is not None]
    if len(columns) < len(parts):
        return None
    if len(columns) == 1:
        return columns[0]
    numbers = [column.numbers for column in columns if column.numbers is not None]
    if len(numbers) < len(columns):
        return _joined_arrays([column.array for column in columns])
    if len({(column.kind, it.dtype) for column, it in zip(columns, numbers, strict=True)}) > 1:
        return None
    return Column(np.concatenate(numbers), columns[0].kind)


def _as_column(part: Sequence[Any]) -> Column | None:
    if isinstance(part, Column):
        return part
    if isinstance(part, range):
        return Column(np.arange(part.start, part.stop, part.step))
    if not isinstance(part, Constant):
        return None
    try:
        dictionary = pa.array([part.value])
        (again,) = dictionary.to_pylist()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if type(again) is not type(part.value) or again != part.value:
        return None
    indices = pa.array(np.zeros(len(part), np.int32))
    return Column(pa.DictionaryArray.from_arrays(indices, dictionary))


def _joined_arrays(arrays: Sequence[pa.Array]) -> Column | None:
    """Join arrays of one type; a dictionary and plain items of its type have one too.

    Return None if the types differ, or an array would have more than 2 GiB of texts.
    """
    try:
        return _concatenated(arrays)
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        return None


def _concatenated(arrays: Sequence[pa.Array]) -> Column | None:
    types = pa.types
    if any(types.is_dictionary(array.type) for array in arrays):
        encoded = [it if types.is_dictionary(it.type) else canonical(it.dictionary_encode()) for it in arrays]
        first = encoded[0]
        if any(it.type != first.type for it in encoded):
            return None
        if all(it.dictionary.equals(first.dictionary) for it in encoded):
            indices = pa.concat_arrays([it.indices for it in encoded])
            return Column(pa.DictionaryArray.from_arrays(indices, first.dictionary))
        whole = pa.chunked_array(encoded).unify_dictionaries().combine_chunks()
        return Column(whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole)
    if any(array.type != arrays[0].type for array in arrays):
        return None
    return Column(pa.concat_arrays(arrays))
