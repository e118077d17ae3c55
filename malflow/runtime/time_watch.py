"""A watch over the event time of a run, which warns once when it stands still."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from malflow.runtime.time_table import TimeRow

__all__ = ["TimeWatch"]

_log = logging.getLogger("malflow.runtime")

_PATIENCE = timedelta(seconds=60)


class TimeWatch:
    """Compares explanations of the run's time, a minute of tick time apart.

    It warns once if operators wait, and neither their time nor the output of the run has gone on.
    """

    def __init__(self) -> None:
        self._since: datetime | None = None
        self._before: Any = None
        self._has_warned = False

    def is_due(self, now: datetime) -> bool:
        """Whether it is time for an explanation."""
        if self._since is None:
            self._since = now
        return not self._has_warned and now - self._since >= _PATIENCE

    def note(self, now: datetime, rows: Sequence[TimeRow], written: int) -> None:
        """Compare an explanation with the one before, if it is due; warn if nothing has gone on.

        Args:
            now: when the tick began.
            rows: the operators that wait.
            written: how many records sinks have received.
        """
        if not self.is_due(now):
            return
        present = [(row.operator, row.frontier) for row in rows], written
        if rows and present == self._before:
            self._has_warned = True
            _log.warning(
                "no epoch and no output for %d s, while operators wait:\n%s",
                _PATIENCE.total_seconds(),
                "\n".join(map(str, rows)),
            )
        self._since, self._before = now, present
