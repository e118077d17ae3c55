"""The laws of functions of batches, for checks: rows of an answer depend on their own row, and inputs stay as they are.

Columns are compared by their bits: 0.0 and -0.0 differ, and a NaN is equal to itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from malflow.columns.answers import together
from malflow.columns.arrays import from_ipc, to_ipc
from malflow.errors import MalflowError, settled_failures
from malflow.words import error_line, short_repr

__all__ = ["LawBroken", "RowsAlone", "check_unchanged", "copied", "difference"]

_SINGLY = 16
"""The rows that a function gets one by one: its first. More: slower checks; fewer: less is found in small batches."""


class LawBroken(MalflowError):
    """A function of batches breaks a law.

    Attributes:
        row: the row of the batch where it shows.
    """

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy of a batch in memory of its own."""
    return pa.record_batch(from_ipc(to_ipc(batch.columns)), names=batch.schema.names)


def difference(one: pa.RecordBatch, other: pa.RecordBatch) -> tuple[int, str, Any, Any] | None:
    """Return the first row in which two batches of the same names and length differ, with the column and both items.

    >>> difference(pa.record_batch({"x": [0.0, 1.0]}), pa.record_batch({"x": [-0.0, 1.0]}))
    (0, 'x', 0.0, -0.0)
    """
    found = []
    for name, left, right in zip(one.schema.names, one.columns, other.columns, strict=True):
        a, b = _comparable(left), _comparable(right)
        if a.type == b.type and a.equals(b):
            continue
        items = zip(a.to_pylist(), b.to_pylist(), strict=True)
        at = next((at for at, (x, y) in enumerate(items) if repr(x) != repr(y)), None)
        if at is not None:
            found.append((at, name, left[at].as_py(), right[at].as_py()))
    return min(found, key=lambda it: it[0], default=None)


def _comparable(array: pa.Array) -> pa.Array:
    """Return an array of which equal items have equal bits."""
    if pa.types.is_dictionary(array.type):
        return _comparable(array.dictionary_decode())
    widths = {pa.float64(): pa.int64(), pa.float32(): pa.int32(), pa.float16(): pa.int16()}
    return array.view(widths[array.type]) if array.type in widths else array


class RowsAlone:
    """Checks that a function answers each row in the same way whatever rows it gets with it.

    It is called again with the batch in two parts, with the first rows one by one, and with the last rows of an earlier
    batch in front, since a batch of one row can't be cut.

    Args:
        call: the function.
    """

    def __init__(self, call: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        self._call = call
        self._before: pa.RecordBatch | None = None

    def check(self, given: pa.RecordBatch, answer: pa.RecordBatch, chance: str) -> None:
        """Check the answer for a batch.

        Args:
            given: the rows that the function got.
            answer: its answer.
            chance: seeds the place of the cut.

        Raises:
            LawBroken: if an answer depends on other rows.
        """
        rows = given.num_rows
        before, self._before = self._before, given.slice(max(0, rows - _SINGLY))
        if rows > 1:
            cut = random.Random(chance).randrange(1, rows)  # noqa: S311 - it keeps no secret
            for start, stop in ((0, cut), (cut, rows), *((at, at + 1) for at in range(min(rows, _SINGLY)))):
                part, due = given.slice(start, stop - start), answer.slice(start, stop - start)
                self._compare_part(part, due, start)
        if before is None or not before.schema.equals(given.schema):
            return
        try:
            longer = self._call(together([before, given]))
        except settled_failures():  # perhaps at an earlier row, if the function depends on something outside
            return
        self._compare(longer.slice(before.num_rows), answer, 0, "its batch is longer")

    def _compare_part(self, part: pa.RecordBatch, due: pa.RecordBatch, start: int) -> None:
        try:
            answer = self._call(part)
        except LawBroken:
            raise
        except settled_failures() as error:
            rows = f"rows {start} to {start + part.num_rows - 1}"
            reason = f"it fails when its batch is cut, at {rows}: {error_line(error)}; {_ONE_BY_ONE}"
            raise LawBroken(reason, start) from error
        self._compare(answer, due, start, "its batch is cut")

    def _compare(self, answer: pa.RecordBatch, due: pa.RecordBatch, start: int, when: str) -> None:
        found = difference(due, answer)
        if found is not None:
            at, name, was, is_now = found
            raise LawBroken(
                f"it gives another answer when {when}: column '{name}', row {start + at}: {short_repr(was)}, then "
                f"{short_repr(is_now)}; {_ONE_BY_ONE}",
                start + at,
            )


_ONE_BY_ONE = (
    "an answer may depend on its own row only, since batches have any size; for totals use .aggregate(), for earlier "
    "records .stateful_map()"
)


def check_unchanged(before: pa.RecordBatch, after: pa.RecordBatch, what: str) -> None:
    """Check that a function has not changed columns.

    Args:
        before: a copy of the columns.
        after: the columns after the call.
        what: its input, or its answer.

    Raises:
        LawBroken: if it has.
    """
    found = difference(before, after)
    if found is not None:
        at, name, was, is_now = found
        raise LawBroken(
            f"it has written to {what}: column '{name}', row {at}: {short_repr(was)}, then {short_repr(is_now)}; "
            "columns are shared and must not change: make new ones",
            at,
        )
