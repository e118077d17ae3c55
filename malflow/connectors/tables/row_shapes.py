"""The forms in which users pass rows: dicts, tuples, lists, dataclasses and other objects with attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from malflow.errors import MalflowError
from malflow.words import plural, short_repr

__all__ = ["RowShape"]


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
