"""The rows of a table that look-ups return: its key, the columns of a row, and their type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from malflow.checks import check_function, check_name, checked_names
from malflow.errors import MalflowError
from malflow.words import plural, short_repr

__all__ = ["LookupRows", "Wanted"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows that a look-up is asked for, as the user has named them.

    Args:
        asked_by: the class that looks up, for messages.
        table: the table's name.
        key: the columns of the key; None for the primary key.
        columns: the columns of a row; None for all.
        row: ``dict``, ``tuple``, or a function that is called with the columns as keywords.

    Raises:
        GraphError: if an argument is invalid.
    """

    asked_by: str
    table: str
    key: Iterable[str] | None
    columns: Iterable[str] | None
    row: Callable[..., Any]

    def __post_init__(self) -> None:
        """Check the arguments, and keep the names of columns as tuples."""
        check_name(self.asked_by, "table", self.table, "the name of a table")
        check_function(self.asked_by, "row", self.row)
        for option, names in (("key", self.key), ("columns", self.columns)):
            if names is not None:
                object.__setattr__(self, option, checked_names(self.asked_by, option, names, what="columns"))


class LookupRows:
    """The key and the columns of a look-up in a table that is known.

    Args:
        table: the table's name, for messages.
        known: the columns of the table.
        primary: the columns of its primary key; empty if it has none.
        wanted: the choice of the user.
        error: the class of the errors that are raised.

    Attributes:
        key: the columns of the key.
        columns: the columns of a row.

    Raises:
        MalflowError: if the table does not fit.
    """

    def __init__(
        self, table: str, known: Sequence[str], primary: Sequence[str], wanted: Wanted, error: type[MalflowError]
    ) -> None:
        self.key = tuple(primary if wanted.key is None else wanted.key)
        self.columns = tuple(known if wanted.columns is None else wanted.columns)
        self._table, self._error = table, error
        self._make = _maker_of(wanted.row, self.columns)
        missing = [name for name in (*self.key, *self.columns) if name not in known]
        if missing:
            raise error(f"table {table} has no column {', '.join(missing)}; it has {', '.join(known)}")
        if not self.key or not self.columns:
            raise error(f"table {table} has no primary key; pass key=[...]")

    def columns_of(self, keys: Sequence[Any]) -> list[list[Any]]:
        """Return the columns of keys; with several columns, each key is a tuple of their number.

        Raises:
            MalflowError: if one is not.
        """
        if len(self.key) == 1:
            return [list(keys)]
        for key in keys:
            if not isinstance(key, tuple) or len(key) != len(self.key):
                raise self._error(
                    f"table {self._table} is looked up by {', '.join(self.key)}, so a key must be a tuple of "
                    f"{plural(len(self.key), 'value')}; got {short_repr(key)}"
                )
        return [list(column) for column in zip(*keys, strict=True)]

    def by_key(self, keys: Sequence[Any], answer: Iterable[Sequence[Any]]) -> Mapping[Any, Any]:
        """Return rows by key, from rows that begin with the index of the key from 1.

        Raises:
            MalflowError: if a key has several rows.
        """
        found: dict[Any, Any] = {}
        for at, *cells in answer:
            key = keys[at - 1]
            if key in found:
                raise self._error(
                    f"table {self._table} has several rows whose {', '.join(self.key)} is {short_repr(key)}; look up "
                    "by columns that are unique together"
                )
            found[key] = self._make(cells)
        return found


def _maker_of(row: Callable[..., Any], columns: Sequence[str]) -> Callable[[Sequence[Any]], Any]:
    if row is dict:
        return lambda cells: dict(zip(columns, cells, strict=True))
    if row is tuple:
        return tuple
    return lambda cells: row(**dict(zip(columns, cells, strict=True)))
