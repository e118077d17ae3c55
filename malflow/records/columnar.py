"""Values that are columns until they are read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress, islice
from operator import itemgetter
from sys import getsizeof
from typing import Any, Self, TypeGuard, TypeVar, overload

from malflow.records.column import join_lists

__all__ = [
    "Columnar",
    "Unfit",
    "count_made",
    "estimated_bytes",
    "is_accumulated",
    "is_columnar",
    "joined",
    "made",
    "read_apart",
    "rows_made",
]

E = TypeVar("E")

_SMALL = 8
"""A part smaller than this fraction is cut from the values, not from the columns: small parts are usually numerous."""

_KINDS: set[type] = set()

_MADE = [0]
"""How many rows that came as columns have become Python objects in this process."""


class Unfit(Exception):
    """Records or states that arrays can't hold exactly; the text says why. They go record by record then."""


class Columnar(Sequence[E]):
    """Values with columns as fields; all are made when the first one is read, and kept.

    Until then the columns can be read directly, including large parts. Afterwards they can't, since the values may have
    been mutated.

    Args:
        columns: the values of each column, by name, all of the same length.
        length: the number of values, if there may be no column.
    """

    __slots__ = ("_columns", "_length", "_values")

    is_whole = True
    """Whether the columns are all fields of the values."""

    has_arrays = False
    """Whether the columns are arrays of Arrow: they are routed, merged and added up as such."""

    is_accumulated = False
    """Whether the values are accumulators, each of several records: `malflow.aggregators.exactness`."""

    joins_uneven = False
    """Whether `join` takes parts of different lengths in turn."""

    def __init_subclass__(cls) -> None:
        _KINDS.add(cls)

    def __init__(self, columns: Mapping[str, Sequence[Any]], length: int | None = None) -> None:
        self._columns = columns
        self._length = len(next(iter(columns.values()))) if length is None else length
        self._values: list[E] | None = None

    @abstractmethod
    def _make(self, columns: Mapping[str, Sequence[Any]]) -> list[E]:
        """Make the values."""

    def like(self, columns: Mapping[str, Sequence[Any]], length: int | None) -> Self:
        """Return values of this kind with other columns."""
        return type(self)(columns, length)

    def column(self, name: str) -> Sequence[Any] | None:
        """Return a column; None if no column has this name, or the values have been made."""
        return self._columns.get(name) if self._values is None else None

    @property
    def columns(self) -> Mapping[str, Sequence[Any]] | None:
        """All columns by name; None if the values have been made."""
        return self._columns if self._values is None else None

    @property
    def batch(self) -> Any:
        """The columns as a record batch of Arrow; None if they are none of Arrow, or the values have been made."""
        return None

    is_composed = False
    """Whether a value is made of several columns together, such as the result of a window, and has others as fields."""

    def made(self) -> list[E]:
        """Return the values."""
        if self._values is None:
            self._values = self._make(self._columns)
            self._columns = {}
        return self._values

    def select(self, mask: Sequence[Any]) -> Sequence[E]:
        """Return the values with a true flag."""
        return self._each(lambda column: list(compress(column, mask)), None if self._columns else sum(map(bool, mask)))

    def take(self, indices: Sequence[int]) -> Sequence[E]:
        """Return the values at two or more indices."""
        return self._each(itemgetter(*indices), len(indices))

    def join(self, parts: Sequence[Columnar[Any]], *, in_turn: bool) -> Sequence[Any] | None:
        """Return parts as values of one kind, of which these are the first; None if they do not have equal columns.

        Args:
            parts: the parts, including these; none has made its values.
            in_turn: whether to take one value from each part in turn; they then have one length.
        """
        held = [part.columns or {} for part in parts]
        if len({(type(part), part.is_whole, *columns) for part, columns in zip(parts, held, strict=True)}) != 1:
            return None
        together = {name: join_lists([columns[name] for columns in held], in_turn=in_turn) for name in self._columns}
        return self.like(together, sum(map(len, parts)))

    def join_beside(self, parts: Sequence[Sequence[Any]], *, in_turn: bool) -> Sequence[Any]:
        """Join columns of keys or timestamps that stand beside values of this kind."""
        return join_lists(parts, in_turn=in_turn)

    def constant(self, key: Any) -> Sequence[Any]:
        """Return a key for each value, as a column that fits values of this kind."""
        return [key] * self._length

    def only(self, names: Sequence[str]) -> Sequence[Any]:
        """Return only some fields, whose names are columns; the same values if this kind can't be cut.

        Raises:
            KeyError: if there is no such column.
        """
        del names
        return self

    def renamed(self, fields: Mapping[str, str]) -> Columnar[Any] | None:
        """Return dicts of some fields, given by their new names, without making the values; None if that can't be."""
        del fields
        return None

    is_arrow = False
    """Whether the columns are a batch of Arrow, which stays one when the values are read `apart`."""

    packs_small = True
    """Whether values are packed a few thousand at a time, as objects are."""

    def packed(self, keys: Sequence[Any] | None, timestamps: Sequence[Any]) -> object | None:
        """Return an object that is unpickled as a tuple of keys, values and timestamps; None to pickle each of them."""
        del keys, timestamps
        return None

    def record_batch(self) -> Any:
        """Return a `pyarrow.RecordBatch` with a column for each field of the values; None if there is none."""
        return None

    def apart(self) -> Sequence[E]:
        """Return the values for another reader. If it makes the values, these remain columns."""
        return self

    def size(self) -> float:
        """Return the approximate size in bytes."""
        return sum(map(estimated_bytes, self._columns.values() if self._values is None else (self._values,)))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[E]:
        return iter(self.made())

    @overload
    def __getitem__(self, at: int) -> E: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[E]: ...

    def __getitem__(self, at: int | slice) -> E | Sequence[E]:
        if not isinstance(at, slice):
            return self.made()[at]
        length = len(range(self._length)[at])
        if self._values is None and self.is_whole and _SMALL * length <= self._length:
            self.made()
        return self._each(lambda column: column[at], length)

    def __eq__(self, other: object) -> bool:
        return self.made() == list(other) if isinstance(other, (list, Columnar)) else NotImplemented

    __hash__ = None  # type: ignore[assignment] # as that of a list

    def __repr__(self) -> str:
        return repr(self.made())

    def __reduce__(self) -> tuple[Any, ...]:
        if self._values is not None:
            return list, (self._values,)
        return type(self), (self._columns, self._length)

    def _each(self, part: Callable[[Sequence[Any]], Sequence[Any]], length: int | None) -> Sequence[E]:
        if self._values is not None:
            return part(self._values)
        return self.like({name: part(column) for name, column in self._columns.items()}, length)


def count_made(rows: int) -> None:
    """Count rows that came as columns and have become Python objects. Two threads may lose a count: it is a hint."""
    _MADE[0] += rows


def rows_made() -> int:
    """Return how many rows that came as columns have become Python objects in this process."""
    return _MADE[0]


def is_columnar(values: Sequence[E]) -> TypeGuard[Columnar[E]]:
    """Whether values are `Columnar`; a look at their type alone. That is cheap for a small batch."""
    return type(values) in _KINDS


def is_accumulated(values: Sequence[Any]) -> bool:
    """Whether all values are accumulators, as columns."""
    return is_columnar(values) and values.is_accumulated


def made(values: Sequence[E]) -> Sequence[E]:
    """Return values to be read one by one: `Columnar` ones as a list, others unchanged."""
    return values.made() if is_columnar(values) else values


def joined(parts: Sequence[Sequence[Any]], *, in_turn: bool) -> Columnar[Any] | None:
    """Join the columns of parts that have the same; None if they have different ones, or one has made its values."""
    if not parts or not is_columnar(parts[0]):
        return None
    for part in parts:
        if not is_columnar(part) or part.columns is None:
            return None
    together = parts[0].join(parts, in_turn=in_turn)  # type: ignore[arg-type] # all are, as the loop has seen
    return together if together is not None and is_columnar(together) else None


def read_apart(values: Sequence[E]) -> Sequence[E]:
    """Return values to be read one by one, without an effect on those that are columns."""
    return made(values.apart()) if is_columnar(values) else values


_LOOKED_AT = 8
"""The number of elements of a value, and of values of a batch, from which the size is estimated."""


def estimated_bytes(values: Sequence[Any]) -> float:
    """Return the approximate size of a column of values, judging by the first of them."""
    count = len(values)
    if not count:
        return 0.0
    if is_columnar(values) and values.columns is not None:
        return values.size()
    looked = values[:_LOOKED_AT] if count < _LOOKED_AT else (values[0], values[count // 2], values[-1])
    return sum(map(_weight, looked)) * count / len(looked)


def _weight(value: Any) -> float:
    """Return the approximate size of an object, including its contents."""
    size = getsizeof(value, 0)
    inner: Any = value.values() if isinstance(value, dict) else value
    if not isinstance(value, list | tuple | dict | set | frozenset) or not value:
        return size
    looked = [getsizeof(it, 0) for it in islice(inner, _LOOKED_AT)]
    return size + sum(looked) * len(value) / len(looked)
