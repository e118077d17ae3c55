"""Rows of columns, which become dicts only when they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import is_, itemgetter
from types import CodeType, FunctionType
from typing import Any

from malflow.records.columnar import Columnar, is_columnar, made

__all__ = ["ReadField", "Rows", "SomeFields", "as_rows", "is_position", "make_dicts", "only_fields"]


ReadField = Callable[[Any], Any] | str | int
"""A field of a value: the name of an item or attribute, its place in a tuple, or a function that reads it."""

_BLOCK = 256
"""Dicts that are looked at together. They fit in the processor's cache, where they are looked at several times."""


def is_position(field: object) -> bool:
    """Whether a field is given by its place: by a number that is not a truth value."""
    return isinstance(field, int) and not isinstance(field, bool)


class SomeFields(dict[str, Any]):
    """Some fields of a record, the others of which were not sent; its text says so.

    >>> SomeFields(people=130_000)
    {'people': 130000, ...}
    """

    def __repr__(self) -> str:
        return f"{{{''.join(f'{name!r}: {value!r}, ' for name, value in self.items())}...}}"


class Rows(Columnar[dict[str, Any]]):
    """Dicts by column name, all created when the first one is read, and kept.

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

    __slots__ = ("is_whole",)

    def __init__(self, columns: Mapping[str, Sequence[Any]], length: int | None = None, is_whole: bool = True) -> None:
        super().__init__(columns, length)
        self.is_whole = is_whole

    def like(self, columns: Mapping[str, Sequence[Any]], length: int | None) -> Rows:
        """Return rows of other columns. They are all fields if these are."""
        return Rows(columns, length, self.is_whole)

    def only(self, names: Sequence[str]) -> Rows:
        """Return rows of some of the columns.

        Raises:
            KeyError: if there is no such column.
        """
        return Rows({name: self._columns[name] for name in names}, len(self), is_whole=False)

    def renamed(self, fields: Mapping[str, str]) -> Rows | None:
        """Return dicts of some fields; None if there is no column for one."""
        columns = self.columns
        if columns is None or not columns.keys() >= {*fields.values()}:
            return None
        return Rows({name: columns[field] for name, field in fields.items()}, len(self))

    def _make(self, columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
        rows = make_dicts(tuple(columns))(columns.values()) if columns else [{} for _ in range(len(self))]
        return rows if self.is_whole else list(map(SomeFields, rows))

    def __reduce__(self) -> tuple[Any, ...]:
        columns = self.columns
        return super().__reduce__() if columns is None else (Rows, (columns, len(self), self.is_whole))


def only_fields(values: Sequence[Any], fields: Mapping[str, ReadField]) -> Sequence[Any]:
    """Return only some fields of values, by the names of their columns; the same values if one can't be read.

    A field by name is read if all values are dicts. A function that fails is called again by the reader.

    >>> only_fields([{"town": "Ulm", "people": 130_000}], {"people": "people"})
    [{'people': 130000, ...}]
    >>> only_fields([{"town": "Ulm"}], {"people": "people"})
    [{'town': 'Ulm'}]
    """
    try:
        if is_columnar(values) and values.columns is not None and all(isinstance(it, str) for it in fields.values()):
            return values.only([*fields])
        whole = made(values)
        if any(isinstance(field, str) for field in fields.values()) and set(map(type, whole)) != {dict}:
            return values
        found = {
            name: [value[field] for value in whole] if isinstance(field, str | int) else list(map(field, whole))
            for name, field in fields.items()
        }
        return (
            Rows(found, len(values), is_whole=False) if all(len(it) == len(values) for it in found.values()) else values
        )
    except Exception:  # noqa: BLE001 - of user code; the reader raises it for its record
        return values


def as_rows(values: Sequence[Any]) -> Sequence[Any]:
    """Return dicts that have the same fields in the same order as `Rows`; other values unchanged.

    Where each dict has names of its own, as from `json.loads`, columns are pickled and read in two thirds of the time.
    Where all have the same objects as names, pickle writes each once, and the values are returned unchanged.

    >>> import json
    >>> as_rows([json.loads('{"people": 1}'), json.loads('{"people": 2}')]).columns
    {'people': [1, 2]}
    >>> as_rows([{"town": "Ulm"}, {"river": "Rhine"}])
    [{'town': 'Ulm'}, {'river': 'Rhine'}]
    """
    if is_columnar(values) or not values or type(values[0]) is not dict or type(values[-1]) is not dict:
        return values
    names = tuple(values[0])
    if not names or all(map(is_, names, values[-1])):
        return values
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK]
        if set(map(type, block)) != {dict}:
            return values
        found = list(chain.from_iterable(block))
        if found != [*names] * len(block) or set(map(type, found)) != {str}:  # a StrEnum equals its text
            return values
        for name, column in columns.items():
            column.extend(map(itemgetter(name), block))
    return Rows(columns, len(values))


@lru_cache(maxsize=256)
def make_dicts(names: tuple[str, ...]) -> Callable[[Any], list[dict[str, Any]]]:
    """Return a function that creates dicts from columns.

    It is generated: a display of a dict takes less than half the time of ``dict(zip(...))``.
    """
    fields = ", ".join(f"{name!r}: v{index}" for index, name in enumerate(names))
    variables = "".join(f"v{index}, " for index in range(len(names)))
    source = f"def make(columns): return [{{{fields}}} for {variables} in zip(*columns, strict=True)]"
    (code,) = (it for it in compile(source, "<rows of columns>", "exec").co_consts if isinstance(it, CodeType))
    return FunctionType(code, {})
