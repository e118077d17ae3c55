"""Rows of columns, which become dicts only when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from types import CodeType, FunctionType
from typing import Any, overload

__all__ = ["Rows", "made"]

_SMALL = 8
"""A part smaller than this fraction is cut from the rows, not from the columns: small parts are usually numerous."""


class Rows(Sequence[dict[str, Any]]):
    """Dicts by column name, all created when the first one is read, and kept.

    Until then the columns can be read directly, also those of large parts. Afterwards they can't, since the dicts may
    have been mutated.

    Args:
        columns: the values of each column, by name; at least one, all of the same length.

    >>> rows = Rows({"town": ["Ulm", "Bonn"], "people": [130_000, 336_000]})
    >>> rows.column("town"), rows[1:].column("town"), rows.column("river")
    (['Ulm', 'Bonn'], ['Bonn'], None)
    >>> rows[0], rows.column("town")
    ({'town': 'Ulm', 'people': 130000}, None)
    """

    __slots__ = ("_columns", "_length", "_rows")

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self._columns = columns
        self._length = len(next(iter(columns.values())))
        self._rows: list[dict[str, Any]] | None = None

    def column(self, name: str) -> Sequence[Any] | None:
        """Return a column; None if no column has this name, or the rows have been created."""
        return self._columns.get(name) if self._rows is None else None

    def made(self) -> list[dict[str, Any]]:
        """Return the rows."""
        if self._rows is None:
            self._rows = _maker(tuple(self._columns))(self._columns.values())
            self._columns = {}
        return self._rows

    def select(self, mask: Sequence[Any]) -> Sequence[dict[str, Any]]:
        """Return the rows whose flag is true."""
        return self._each(lambda column: list(compress(column, mask)))

    def take(self, pick: Callable[[Sequence[Any]], Sequence[Any]]) -> Sequence[dict[str, Any]]:
        """Return the rows that a function picks from a sequence of the same length."""
        return self._each(pick)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.made())

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[dict[str, Any]]: ...

    def __getitem__(self, at: int | slice) -> dict[str, Any] | Sequence[dict[str, Any]]:
        if not isinstance(at, slice):
            return self.made()[at]
        if self._rows is None and _SMALL * len(range(self._length)[at]) <= self._length:
            self.made()
        return self._each(lambda column: column[at])

    def __eq__(self, other: object) -> bool:
        return self.made() == list(other) if isinstance(other, (list, Rows)) else NotImplemented

    __hash__ = None  # type: ignore[assignment] # as that of a list

    def __repr__(self) -> str:
        return repr(self.made())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Rows, (self._columns,)) if self._rows is None else (list, (self._rows,))

    def _each(self, part: Callable[[Sequence[Any]], Sequence[Any]]) -> Sequence[dict[str, Any]]:
        if self._rows is not None:
            return part(self._rows)
        return Rows({name: part(column) for name, column in self._columns.items()})


def made(values: Sequence[Any]) -> Sequence[Any]:
    """Return values to be read one by one: `Rows` as a list, others unchanged."""
    return values.made() if type(values) is Rows else values


@lru_cache(maxsize=256)
def _maker(names: tuple[str, ...]) -> Callable[[Any], list[dict[str, Any]]]:
    """Return a function that creates dicts from columns.

    It is generated: a display of a dict takes less than half the time of ``dict(zip(...))``.
    """
    fields = ", ".join(f"{name!r}: v{index}" for index, name in enumerate(names))
    variables = "".join(f"v{index}, " for index in range(len(names)))
    source = f"def make(columns): return [{{{fields}}} for {variables} in zip(*columns, strict=True)]"
    (code,) = (it for it in compile(source, "<rows of columns>", "exec").co_consts if isinstance(it, CodeType))
    return FunctionType(code, {})
