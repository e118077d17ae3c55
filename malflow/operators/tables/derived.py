"""Tables without a state of their own, derived from the changes of another one, and streams of a table's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from malflow.errors import failures
from malflow.operators.columns import Results
from malflow.operators.contract import Operator
from malflow.operators.keying import check_keys
from malflow.operators.tables.table import incomparable
from malflow.records.batch import Batch
from malflow.records.changes import make_change, rows_after, rows_of, with_changes

__all__ = ["FilterRows", "FilterTable", "MapRows", "MapTable", "Regroup", "RowsAfter"]

_NO_ROW = (
    "it returned None, which is not a row; call .filter() on the table to drop rows, "
    "or return a row with an empty value in it"
)


class MapTable(Operator):
    """Replace the rows of changes with the mapper's result; drop changes that then leave their row as it was."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map both rows of each change."""
        befores, afters = rows_of(batch.values)
        rest, olds, news, mask = iter(befores), [], [], []
        old: Any = None
        new: Any = None
        try:
            for before, after in zip(rest, afters, strict=True):
                old, new = None, None  # so that a failing mapper is not taken for a failing comparison
                old, new = self._mapped(before), self._mapped(after)
                mask.append(not old == new)  # noqa: SIM201 - rows are compared by ==
                olds.append(old)
                news.append(new)
        except Exception as error:
            raise self.fail(incomparable(error, old, new), batch, rest) from error
        return (with_changes(batch, olds, news, mask),)

    def _mapped(self, row: Any) -> Any:
        if row is None:
            return None
        mapped = self.callback(row)
        if mapped is None:
            raise TypeError(_NO_ROW)
        return mapped


class MapRows(MapTable):
    """Replace rows with the mapper's result; None stays None."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map the value column."""
        rest = iter(batch.values)
        try:
            return (batch.with_values([self._mapped(row) for row in rest]),)
        except failures() as error:
            raise self.fail(error, batch, rest) from error


class FilterTable(Operator):
    """Keep the rows that satisfy the predicate; a change from one that does to one that doesn't is a deletion."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Look at both rows of each change."""
        befores, afters = rows_of(batch.values)
        predicate, rest, olds, news, mask = self.callback, iter(befores), [], [], []
        try:
            for before, after in zip(rest, afters, strict=True):
                was = before is not None and predicate(before)
                now = after is not None and predicate(after)
                mask.append(True if was or now else False)  # noqa: SIM210 - cheaper than bool()
                olds.append(before if was else None)
                news.append(after if now else None)
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return (with_changes(batch, olds, news, mask),)


class FilterRows(Operator):
    """Replace rows that do not satisfy the predicate with None."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Look at the value column."""
        predicate, rest = self.callback, iter(batch.values)
        try:
            return (batch.with_values([row if row is not None and predicate(row) else None for row in rest]),)
        except failures() as error:
            raise self.fail(error, batch, rest) from error


class RowsAfter(Operator):
    """Replace each change with the row after it, or None."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Take the second row of each change."""
        return (batch.with_values(rows_after(batch.values)),)


class Regroup(Operator):
    """Set the key of each change to its row's key. A row with a new key is deleted there and inserted here."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Compute the key of both rows of each change."""
        key_of, rest, results, done = self.callback, iter(batch.values), Results(), 0
        marks = [*batch.epochs]
        try:
            for change, timestamp in zip(rest, batch.timestamps, strict=True):
                while marks and marks[0][0] <= done:
                    results.mark((marks.pop(0),))
                done += 1
                before, after = change
                was = None if before is None else key_of(before)
                now = None if after is None else key_of(after)
                if before is None or after is None or was == now:
                    results.add((was if after is None else now,), (change,), timestamp)
                    continue
                results.add((was, now), (make_change((before, None)), make_change((None, after))), timestamp)
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        results.mark(marks)
        made = results.batch()
        check_keys(self, made.keys or (), made)
        return (made,)
