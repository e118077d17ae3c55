"""Options that sinks of tables share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from malflow.connectors.tables.row_shapes import RowShape
from malflow.errors import MalflowError

__all__ = ["TableFacts", "chosen_shape"]


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
