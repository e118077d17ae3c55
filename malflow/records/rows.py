"""Rows of columns, which become dicts only when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from types import CodeType, FunctionType
from typing import Any, overload

__all__ = ["Rows", "SomeFields", "joined_rows", "made", "only_fields"]

_SMALL = 8
"""A part smaller than this fraction is cut from the rows, not from the columns: small parts are usually numerous."""


class SomeFields(dict[str, Any]):
    """Some fields of a record, the others of which were not sent; its text says so.

    >>> SomeFields(people=130_000)
    {'people': 130000, ...}
    """

    def __repr__(self) -> str:
        return f"{{{''.join(f'{name!r}: {value!r}, ' for name, value in self.items())}...}}"


class Rows(Sequence[dict[str, Any]]):
    """Dicts by column name, all created when the first one is read, and kept.

    Until then the columns can be read directly, also those of large parts. Afterwards they can't, since the dicts may
    have been mutated.

    Args:
        columns: the values of each column, by name, all of the same length.
        length: the number of rows, if there may be no column.
        is_whole: whether the columns are all fields of the records; if not, the dicts are `SomeFields`.

    >>> rows = Rows({"town": ["Ulm", "Bonn"], "people": [130_000, 336_000]})
    >>> rows.column("town"), rows[1:].column("town"), rows.column("river")
    (['Ulm', 'Bonn'], ['Bonn'], None)
    >>> rows[0], rows.column("town")
    ({'town': 'Ulm', 'people': 130000}, None)
    """

    __slots__ = ("_columns", "_length", "_rows", "is_whole")

    def __init__(self, columns: Mapping[str, Sequence[Any]], length: int | None = None, is_whole: bool = True) -> None:
        self._columns = columns
        self._length = len(next(iter(columns.values()))) if length is None else length
        self.is_whole = is_whole
        self._rows: list[dict[str, Any]] | None = None

    def column(self, name: str) -> Sequence[Any] | None:
        """Return a column; None if no column has this name, or the rows have been created."""
        return self._columns.get(name) if self._rows is None else None

    @property
    def columns(self) -> Mapping[str, Sequence[Any]] | None:
        """All columns by name; None if the rows have been created."""
        return self._columns if self._rows is None else None

    def made(self) -> list[dict[str, Any]]:
        """Return the rows."""
        if self._rows is None:
            if self._columns:
                rows = _maker(tuple(self._columns))(self._columns.values())
            else:
                rows = [{} for _ in range(self._length)]
            self._rows = rows if self.is_whole else list(map(SomeFields, rows))
            self._columns = {}
        return self._rows

    def select(self, mask: Sequence[Any]) -> Sequence[dict[str, Any]]:
        """Return the rows whose flag is true."""
        return self._each(lambda column: list(compress(column, mask)), None if self._columns else sum(map(bool, mask)))

    def take(self, pick: Callable[[Sequence[Any]], Sequence[Any]]) -> Sequence[dict[str, Any]]:
        """Return the rows that a function picks from a sequence of the same length."""
        return self._each(pick, None if self._columns else len(pick(range(self._length))))

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
        length = len(range(self._length)[at])
        if self._rows is None and self.is_whole and _SMALL * length <= self._length:
            self.made()
        return self._each(lambda column: column[at], length)

    def __eq__(self, other: object) -> bool:
        return self.made() == list(other) if isinstance(other, (list, Rows)) else NotImplemented

    __hash__ = None  # type: ignore[assignment] # as that of a list

    def __repr__(self) -> str:
        return repr(self.made())

    def __reduce__(self) -> tuple[Any, ...]:
        if self._rows is not None:
            return list, (self._rows,)
        return Rows, (self._columns, self._length, self.is_whole)

    def _each(self, part: Callable[[Sequence[Any]], Sequence[Any]], length: int | None) -> Sequence[dict[str, Any]]:
        if self._rows is not None:
            return part(self._rows)
        return Rows({name: part(column) for name, column in self._columns.items()}, length, self.is_whole)


def only_fields(values: Sequence[Any], names: Sequence[str]) -> Sequence[Any]:
    """Return only some fields of values; the same values unless all of them are dicts that have these fields.

    >>> only_fields([{"town": "Ulm", "people": 130_000}], ["people"])
    [{'people': 130000, ...}]
    >>> only_fields([{"town": "Ulm"}], ["people"])
    [{'town': 'Ulm'}]
    """
    columns = values.columns if type(values) is Rows else None
    try:
        if columns is not None:
            return Rows({name: columns[name] for name in names}, len(values), is_whole=False)
        if set(map(type, values)) == {dict}:
            found = {name: [value[name] for value in values] for name in names}
            return Rows(found, len(values), is_whole=False)
    except KeyError:
        pass
    return values


def joined_rows(
    parts: Sequence[Sequence[Any]], join: Callable[[Iterable[Iterable[Any]]], Iterable[Any]]
) -> Rows | None:
    """Join the columns of parts that have the same; None if they have different ones, or one has created its rows."""
    held: list[Mapping[str, Sequence[Any]]] = []
    is_whole: set[bool] = set()
    for part in parts:
        if type(part) is not Rows or (columns := part.columns) is None:
            return None
        held.append(columns)
        is_whole.add(part.is_whole)
    if len(is_whole) != 1 or len(set(map(tuple, held))) != 1:
        return None
    joined = {name: list(join([columns[name] for columns in held])) for name in held[0]}
    return Rows(joined, sum(map(len, parts)), is_whole.pop())


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
