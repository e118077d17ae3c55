"""Changes of a table as two columns, which become objects only when they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from malflow.message import TableChange
from malflow.records.batch import Batch
from malflow.records.columnar import Columnar

__all__ = ["Changes", "changes_of", "make_change", "rows_after", "rows_of", "with_changes"]

make_change: Callable[[tuple[Any, Any]], TableChange[Any]] = partial(tuple.__new__, TableChange)
"""Make a change of a pair; a third of the time that the class takes."""

_BEFORE, _AFTER = "before", "after"


class Changes(Columnar[TableChange[Any]]):
    """Changes of rows. Their columns are the rows before and after them.

    >>> changes = changes_of([None, "Ulm"], ["Ulm", "Bonn"])
    >>> rows_after(changes), changes[1]
    (['Ulm', 'Bonn'], TableChange(before='Ulm', after='Bonn'))
    """

    __slots__ = ()

    def _make(self, columns: Mapping[str, Sequence[Any]]) -> list[TableChange[Any]]:
        pairs = zip(columns[_BEFORE], columns[_AFTER], strict=True)
        return list(map(tuple.__new__, repeat(TableChange), pairs))


def changes_of(befores: Sequence[Any], afters: Sequence[Any]) -> Changes:
    """Return the changes between two columns of rows."""
    return Changes({_BEFORE: befores, _AFTER: afters}, len(afters))


def with_changes(batch: Batch, befores: Sequence[Any], afters: Sequence[Any], mask: Sequence[bool]) -> Batch:
    """Return a batch with the changes between two columns of rows with a true flag."""
    changed = batch.with_values(changes_of(befores, afters))
    return changed if all(mask) else changed.select(mask)


def rows_after(changes: Sequence[Any]) -> Sequence[Any]:
    """Return the row after each change, without making changes that are still columns."""
    column = changes.column(_AFTER) if type(changes) is Changes else None
    return [change[1] for change in changes] if column is None else column


def rows_of(changes: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the rows before and after each change, without making changes that are still columns."""
    columns = changes.columns if type(changes) is Changes else None
    if columns is None:
        return [change[0] for change in changes], [change[1] for change in changes]
    return columns[_BEFORE], columns[_AFTER]
