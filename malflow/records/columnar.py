"""Values that are columns until they are read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, Self, TypeGuard, TypeVar, overload

__all__ = ["Columnar", "is_columnar", "joined", "made"]

E = TypeVar("E")

_SMALL = 8
"""A part smaller than this fraction is cut from the values, not from the columns: small parts are usually numerous."""

_KINDS: set[type] = set()


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

    def made(self) -> list[E]:
        """Return the values."""
        if self._values is None:
            self._values = self._make(self._columns)
            self._columns = {}
        return self._values

    def select(self, mask: Sequence[Any]) -> Sequence[E]:
        """Return the values with a true flag."""
        return self._each(lambda column: list(compress(column, mask)), None if self._columns else sum(map(bool, mask)))

    def take(self, pick: Callable[[Sequence[Any]], Sequence[Any]]) -> Sequence[E]:
        """Return the values that a function picks from a sequence of the same length."""
        return self._each(pick, None if self._columns else len(pick(range(self._length))))

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


def is_columnar(values: Sequence[E]) -> TypeGuard[Columnar[E]]:
    """Whether values are `Columnar`; a look at their type alone. That is cheap for a small batch."""
    return type(values) in _KINDS


def made(values: Sequence[E]) -> Sequence[E]:
    """Return values to be read one by one: `Columnar` ones as a list, others unchanged."""
    return values.made() if is_columnar(values) else values


def joined(
    parts: Sequence[Sequence[Any]], join: Callable[[Iterable[Iterable[Any]]], Iterable[Any]]
) -> Columnar[Any] | None:
    """Join the columns of parts that have the same; None if they have different ones, or one has made its values."""
    held: list[Mapping[str, Sequence[Any]]] = []
    kinds: set[Any] = set()
    for part in parts:
        if not is_columnar(part) or (columns := part.columns) is None:
            return None
        held.append(columns)
        kinds.add((type(part), part.is_whole, *columns))
    if len(kinds) != 1:
        return None
    together = {name: list(join([columns[name] for columns in held])) for name in held[0]}
    first: Any = parts[0]
    return first.like(together, sum(map(len, parts)))  # type: ignore[no-any-return] # as the first one
