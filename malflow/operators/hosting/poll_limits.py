"""How many records a source reads of each of its parts in a tick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from malflow.records.batch import BATCH_SIZE, Batch, concat
from malflow.records.columnar import is_columnar, rows_made

__all__ = ["PollLimits"]

_SMALLEST_POLL = 64
"""The least limit of a part, unless the limit of the whole tick is lower."""

_WIDEST = 8
"""How much more than other records is read of columns that stay columns: 65,536 rows cost little more than 8,192."""

_WIDENED_SECONDS = 0.05
"""The most time between two polls at which the next one reads more columns; at twice that time it reads fewer."""

_FEW_MADE = 2
"""Columns stay columns if at most one in so many of their records has become an object."""


class PollLimits:
    """Shares the limit of a tick among the parts of a source.

    Args:
        poll: polls a part for so many records.
        is_finished: whether a part has ended.

    Attributes:
        limit: the limit of the next tick.
        most: the maximum number of records that any tick polls.
    """

    def __init__(self, poll: Callable[[Any, int], Batch], is_finished: Callable[[Any], bool]) -> None:
        self.limit = self.most = BATCH_SIZE
        self._poll = poll
        self._is_finished = is_finished
        self._width = _Width()

    def of_part(self, parts: int) -> int:
        """Return the limit of each of so many parts. It grows while their columns stay columns."""
        limit = max(min(self.limit, _SMALLEST_POLL), self.limit // parts)
        limit = max(1, min(limit, self.most // parts))
        if 2 * self.limit >= BATCH_SIZE <= self.most:  # pacing keeps a little below for uneven workers
            limit *= self._width.next()
        return limit

    def in_turn(self, parts: Sequence[Any], limit: int) -> dict[Any, Batch]:
        """Poll the parts one after the other, up to the limit of all: the first is read at full speed, to its end.

        A part that returns fewer records than asked for is asked once more: only then may it know that it has ended,
        and another part may take its place after this tick.
        """
        polled: dict[Any, Batch] = {}
        for part in parts:
            if limit <= 0:
                break
            polled[part] = batch = self._poll(part, limit)
            limit -= len(batch)
            if limit > 0 and len(batch) and not self._is_finished(part):
                more = self._poll(part, limit)
                polled[part] = concat([batch, more]) if len(more) else batch
                limit -= len(more)
        return polled

    def side_by_side(self, parts: Sequence[Any], limit: int) -> dict[Any, Batch]:
        """Poll each part up to a limit, and those with more records again while quiet ones leave some of the tick."""
        polled = {part: self._poll(part, limit) for part in parts}
        if len(parts) > 1:
            self._poll_rest(polled, limit)
        return polled

    def _poll_rest(self, polled: dict[Any, Batch], limit: int) -> None:
        rest = min(self.limit, self.most) - sum(map(len, polled.values()))
        if rest < _SMALLEST_POLL:
            return
        full = [part for part, batch in polled.items() if len(batch) >= limit]
        while full and (share := rest // len(full)) >= _SMALLEST_POLL:
            again, full = full, []
            for part in again:
                if self._is_finished(part):
                    continue
                more = self._poll(part, share)
                if len(more):
                    polled[part] = concat([polled[part], more])
                    rest -= len(more)
                if len(more) >= share:
                    full.append(part)

    def note(self, batch: Batch) -> None:
        """Note the records of a poll of all parts."""
        self._width.note(batch)


class _Width:
    """How many times more records a poll reads than by its limit: more while columns stay columns, and ticks short."""

    def __init__(self) -> None:
        self._width = 1
        self._polled = self._made = 0
        self._began = 0.0

    def next(self) -> int:
        """Return the width of the next poll."""
        if not self._polled:
            return 1
        elapsed = monotonic() - self._began
        if rows_made() - self._made > self._polled // _FEW_MADE:
            self._width = 1
        elif elapsed < _WIDENED_SECONDS:
            self._width = min(2 * self._width, _WIDEST)
        elif elapsed > 2 * _WIDENED_SECONDS:
            self._width = max(1, self._width // 2)
        return self._width

    def note(self, batch: Batch) -> None:
        """Note the records of a poll."""
        self._polled = len(batch) if is_columnar(batch.values) else 0
        if self._polled:
            self._made, self._began = rows_made(), monotonic()
