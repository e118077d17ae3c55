"""The rows of tables: the forms in which users pass them, and what look-ups return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol

from malflow.checks import check_function, check_name, checked_names
from malflow.errors import MalflowError
from malflow.words import plural, short_repr

__all__ = [
    "LookupRows",
    "RowShape",
    "TableFacts",
    "Wanted",
    "chosen_shape",
]


class RowShape:
    """The columns of a table that are written, and the position of the key among them.

    Args:
        table: the table's name, for messages.
        columns: the columns that are written.
        key: the columns that make a row unique; empty if rows are appended.
        error: the class of the errors that are raised.
    """

    def __init__(
        self, table: str, columns: tuple[str, ...], key: tuple[str, ...], error: type[MalflowError] = MalflowError
    ) -> None:
        self.table, self.columns, self.key, self.error = table, columns, key, error
        self._of_dict = itemgetter(*columns) if len(columns) > 1 else lambda row, name=columns[0]: (row[name],)
        places = [columns.index(name) for name in key]
        self.key_of = itemgetter(*places) if len(places) > 1 else lambda row, at=(places or [0])[0]: (row[at],)

    def __reduce__(self) -> tuple[Any, ...]:
        return RowShape, (self.table, self.columns, self.key, self.error)

    def rows(self, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows of a batch; a row that lacks a column, or has another one, is an error."""
        kinds, width = set(map(type, values)), len(self.columns)
        if kinds == {dict} and set(map(len, values)) == {width}:
            try:
                return list(map(self._of_dict, values))
            except KeyError:
                pass  # the row is found, and named, below
        if kinds == {tuple} and set(map(len, values)) == {width}:
            return list(values)
        return [self.row(value) for value in values]

    def row(self, value: Any) -> tuple[Any, ...]:
        """Convert a value to a row."""
        if isinstance(value, Mapping):
            return self._of_mapping(value)
        if hasattr(value, "_fields"):
            return self._of_mapping(value._asdict())
        if isinstance(value, (tuple, list)):
            if len(value) != len(self.columns):
                raise self._unfit(
                    value, f"it has {plural(len(value), 'value')} for {plural(len(self.columns), 'column')}"
                )
            return tuple(value)
        try:
            return tuple(getattr(value, name) for name in self.columns)
        except AttributeError as error:
            raise self._unfit(value, str(error)) from error

    def key_in(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the key of a row that may consist of its key; a missing column of the key is an error."""
        try:
            return tuple(row[name] for name in self.key)
        except KeyError as error:
            raise self._unfit(row, f"it lacks column {error} of the key") from None

    def key_from(self, key: Any) -> tuple[Any, ...]:
        """Convert a record's key to the key of a row."""
        parts = tuple(key) if isinstance(key, (tuple, list)) else (key,)
        if len(parts) != len(self.key):
            raise self._unfit(key, f"as key of a row to delete it has {plural(len(parts), 'value')} for {self.key}")
        return parts

    def _of_mapping(self, value: Mapping[str, Any]) -> tuple[Any, ...]:
        missing = [name for name in self.columns if name not in value]
        extra = [name for name in value if name not in self.columns]
        if missing or extra:
            lacks = f"it lacks {missing}" if missing else f"{extra} are not columns of the sink"
            raise self._unfit(value, lacks)
        return tuple(value[name] for name in self.columns)

    def _unfit(self, value: Any, why: str) -> MalflowError:
        return self.error(
            f"table {self.table}: {short_repr(value)} is not a row of columns {', '.join(self.columns)}: {why}; pass "
            "columns=[...], or formatter=lambda msg: ..."
        )


class TableFacts(Protocol):
    """The description of a table by its database.

    Attributes:
        shown: its name, for messages.
        columns: the columns that can be written.
        primary_key: the columns of its primary key; empty if it has no key.
        uniques: the columns of each unique index.
    """

    @property
    def shown(self) -> str: ...  # noqa: D102
    @property
    def columns(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def primary_key(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def uniques(self) -> tuple[frozenset[str], ...]: ...  # noqa: D102


def chosen_shape(
    table: TableFacts,
    key: tuple[str, ...] | None,
    columns: tuple[str, ...] | None,
    error: type[MalflowError],
    *,
    more: Iterable[str] = (),
) -> RowShape:
    """Return the shape of the rows that a user wants to write.

    Args:
        table: the target table.
        key: the key's columns; None for the primary key, empty to append.
        columns: the columns to write; None for all.
        error: the class of the error if the table does not fit.
        more: other columns that must exist.
    """
    written = table.columns if columns is None else columns
    by = table.primary_key if key is None else key
    unknown = [name for name in (*written, *by, *more) if name not in table.columns]
    if unknown:
        raise error(f"table {table.shown} has no column {', '.join(unknown)} that can be written")
    if key is None and not by:
        raise error(f"table {table.shown} has no primary key; pass key=[...], or key=() to append")
    if not written or set(by) - set(written):
        raise error(f"table {table.shown}: columns must contain the key, {', '.join(by)}")
    if by and frozenset(by) not in table.uniques:
        checked = " that is not deferrable" if frozenset(by) == frozenset(table.primary_key) else ""
        raise error(f"table {table.shown} has no unique index of {', '.join(by)}{checked}; make one, or change key")
    return RowShape(table.shown, written, by, error)


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
