"""The clock of a run, which sets the time of its ticks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["RunClock"]


class RunClock:
    """The system's clock, but never going back, not even before the snapshot that a run continues from.

    Attributes:
        now: the time of the last reading, in UTC.
        started: the time of the first reading.
    """

    def __init__(self) -> None:
        self.now = datetime(1970, 1, 1, tzinfo=UTC)
        self.started: datetime | None = None
        self._ahead = timedelta(0)

    def advance_to(self, time: datetime | None) -> None:
        """Set the earliest time that may be read; None if unknown."""
        if time is not None:
            self.now = max(self.now, time)

    def read(self) -> tuple[datetime, datetime]:
        """Return the time and the time of the first reading."""
        self.now = max(self.now, datetime.now(UTC) + self._ahead)
        self.started = self.started or self.now
        return self.now, self.started

    def skip(self, time: timedelta) -> None:
        """Advance by some time at once, for test scripts."""
        if time:
            self.read()
            self.now += time
            self._ahead = self.now - datetime.now(UTC)
