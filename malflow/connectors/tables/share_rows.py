"""Write the rows that workers have encoded for a table: reduced to one for each key, in a segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from malflow.connectors.segments import Sealed, SegmentWriter
from malflow.connectors.tables.refused_rows import WrittenAgain
from malflow.connectors.tables.transaction_rows import Packed, RowBatch, TransactionRows

__all__ = ["RowsWriter"]


class RowsWriter:
    """Writes the rows of a transaction, for `malflow.sinks.ShareWriter`.

    Args:
        rows: holds the rows.
        plain: checks batches of rows, and returns them as plain values.
        segment: the segment.
        stage: is called before the segment is written, with whether the table is emptied first, and the batches; what
            it returns is added to the share.
    """

    def __init__(
        self,
        rows: TransactionRows,
        plain: Callable[[Sequence[RowBatch]], tuple[Any, ...]],
        segment: SegmentWriter,
        stage: Callable[[bool, tuple[Any, ...]], tuple[Any, ...]] = lambda *_: (),
    ) -> None:
        self._rows = rows
        self._plain = plain
        self._segment = segment
        self._stage = stage
        self._again: list[Any] = []

    def write(self, piece: Packed | WrittenAgain) -> None:
        """Add rows. They replace earlier ones of the same key; rows that are written again follow all others."""
        if isinstance(piece, WrittenAgain):
            self._again += piece.batches
            return
        self._rows.add(*piece)

    def seal(self) -> tuple[Any, ...] | None:
        """Write the segment: whether the table is emptied first, and the batches. None if there are none.

        Raises:
            MalflowError: if a row does not fit the table.
        """
        cleared, batches = self.taken()
        if not batches and not cleared:
            return None
        staged = self._stage(cleared, batches)
        self._segment.write((cleared, batches))
        sealed: Sealed = self._segment.seal()
        return (*sealed, *staged)

    def taken(self) -> tuple[bool, tuple[Any, ...]]:
        """Return whether the table is emptied first, and the batches, and forget them."""
        rows = self._rows
        batches, cleared = self._plain(list(rows.batches())) if len(rows) else (), rows.cleared
        rows.reset()
        again, self._again = tuple(self._again), []
        return cleared, (*batches, *again)

    def discard(self) -> None:
        """Drop the rows."""
        self._again = []
        self._rows.reset()
        self._segment.discard()
