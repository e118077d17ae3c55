"""Columns of keys and timestamps that stay columns: what a batch needs of them, whatever holds the data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, compress
from operator import itemgetter
from typing import Any, TypeGuard

__all__ = ["BaseColumn", "is_column", "join_lists", "listed", "picked", "positions_of", "selected"]

_KINDS: set[type] = set()


class BaseColumn(Sequence[Any]):
    """Keys or timestamps of a batch that are kept as a column; its items become Python objects when they are read.

    It equals a list of the same items, and can be read like one.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        _KINDS.add(cls)

    @abstractmethod
    def tolist(self) -> list[Any]:
        """Return the items as Python objects. The list is kept, and must not be changed."""

    @abstractmethod
    def select(self, mask: Sequence[Any]) -> Sequence[Any]:
        """Return the items with a true flag."""

    @abstractmethod
    def pick(self, indices: Sequence[int]) -> Sequence[Any]:
        """Return the items at indices."""

    @abstractmethod
    def kinds(self) -> set[type]:
        """Return the Python types of the items."""

    @abstractmethod
    def is_sound(self) -> bool:
        """Whether all items are valid timestamps that compare with each other, as their type and range tell."""

    @abstractmethod
    def unusable(self) -> Sequence[int]:
        """Return the positions of the items that are None, or do not equal themselves."""

    @abstractmethod
    def positions(self, wanted: Collection[Any]) -> Sequence[int]:
        """Return the positions of the items that are among some."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        return self.tolist() == list(other) if isinstance(other, (list, range, BaseColumn)) else NotImplemented

    __hash__ = None  # type: ignore[assignment] # as that of a list

    def __repr__(self) -> str:
        return repr(self.tolist())


def is_column(items: object) -> TypeGuard[BaseColumn]:
    """Whether keys or timestamps are a `BaseColumn`; a look at their type alone. That is cheap for a small batch."""
    return type(items) in _KINDS


def listed(items: Sequence[Any]) -> Sequence[Any]:
    """Return a `BaseColumn` as a list, and other keys or timestamps unchanged."""
    return items.tolist() if is_column(items) else items


def selected(items: Sequence[Any], mask: Sequence[Any]) -> Sequence[Any]:
    """Return the keys or timestamps with a true flag."""
    return items.select(mask) if is_column(items) else list(compress(items, mask))


def picked(items: Sequence[Any], indices: Sequence[int]) -> Sequence[Any]:
    """Return the keys or timestamps at two or more indices."""
    return items.pick(indices) if is_column(items) else itemgetter(*indices)(items)


def positions_of(items: Sequence[Any], wanted: Collection[Any]) -> Sequence[int]:
    """Return the positions of the keys that are among some."""
    if is_column(items):
        return items.positions(wanted)
    return [at for at, item in enumerate(items) if item in wanted]


def join_lists(parts: Sequence[Sequence[Any]], *, in_turn: bool) -> list[Any]:
    """Return the items of several sequences, one after the other, or one of each in turn if they have one length.

    >>> join_lists([[1, 2], range(3, 5)], in_turn=False), join_lists([[1, 2], [3, 4]], in_turn=True)
    ([1, 2, 3, 4], [1, 3, 2, 4])
    """
    return list(chain.from_iterable(zip(*parts, strict=True) if in_turn else parts))
