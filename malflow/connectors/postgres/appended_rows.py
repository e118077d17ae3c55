"""Write rows that are appended to a table, whose text the workers have made."""

from __future__ import annotations

from typing import Any

from malflow.connectors.postgres.batches import Batch
from malflow.connectors.tables.refused_rows import WrittenAgain
from malflow.connectors.tables.share_rows import RowsWriter

__all__ = ["AppendedWriter"]

_TEXT = len(Batch._fields)


class AppendedWriter(RowsWriter):
    """Writes rows without a key: a `Batch` for each piece, or records that may empty the table."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._cleared = False
        self._texts: list[Batch] = []

    def write(self, piece: Any) -> None:
        """Add rows."""
        if isinstance(piece, WrittenAgain):
            self._texts += [Batch(*it) for it in piece.batches]
            return
        if len(piece) == _TEXT:
            self._texts.append(Batch(*piece))
            return
        super().write(piece)
        cleared, batches = super().taken()
        if cleared:
            self._cleared, self._texts = True, []
        self._texts += [Batch(*it) for it in batches]

    def taken(self) -> tuple[bool, tuple[Any, ...]]:
        """Return whether the table is emptied first, and one batch of all rows."""
        texts, self._texts = self._texts, []
        if not texts:
            return self._cleared, ()
        text = b"".join(it.text for it in texts)
        return self._cleared, (tuple(texts[0]._replace(size=sum(it.size for it in texts), text=text)),)

    def discard(self) -> None:
        """Drop the rows."""
        super().discard()
        self._texts = []
