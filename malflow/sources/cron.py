"""The instants of a cron expression in a time zone with clock changes.

The expression is matched against wall-clock time, without a zone. Each matching time is then converted to instants:
usually one, two where clocks are put back, none where they are put forward. For ascending times, the first occurrences
ascend; a second occurrence is held until they have passed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from heapq import heappop, heappush

from malflow.errors import MissingDependency

__all__ = ["Schedule"]

_AROUND = [timedelta(hours=hours) for hours in range(-26, 27, 2)]
"""How far around an instant to look for offsets; the greatest change of a clock ever was a day."""

_SECOND, _MINUTE = timedelta(seconds=1), timedelta(minutes=1)
_FIELDS_OF_CRON = 5
"""The fields of an expression of cron: minute, hour, day, month and weekday; a sixth one would be the second."""


class Schedule:
    """The instants that a cron expression selects.

    As in Debian's cron, an expression of five fields with a minute and hour that don't begin with ``*`` runs once for
    each
    time: at its first occurrence, or right after the gap that skips it. Any other runs whenever the clock matches.

    Args:
        expression: the cron expression.
        zone: the zone of the clock.
    """

    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._expression = expression
        self._zone = zone
        fields = expression.split()
        self._runs_once = len(fields) == _FIELDS_OF_CRON and not any(field.startswith("*") for field in fields[:2])

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Yield the instants after the given one, ascending, in UTC.

        Raises:
            ValueError: if the expression is malformed.
            MissingDependency: if cronsim is not installed.
        """
        waiting: list[datetime] = []
        last = instant
        for wall in self._matching(instant + min(self._offsets(instant)) - _SECOND):
            occurrences = self._occurrences(wall)
            for found in occurrences:
                heappush(waiting, found)
            while occurrences and waiting and waiting[0] <= occurrences[0]:
                found = heappop(waiting)
                if found > last:
                    last = found
                    yield found
        yield from (found for found in sorted(set(waiting)) if found > last)

    def before(self, instant: datetime) -> datetime | None:
        """Return the last instant before the given one, in UTC, or None.

        Raises:
            ValueError: if the expression is malformed.
            MissingDependency: if cronsim is not installed.
        """
        latest: datetime | None = None
        for wall in self._matching(instant + max(self._offsets(instant)) + _SECOND, reverse=True):
            if latest is not None and self._in_utc(wall, fold=1) < latest:
                break  # second occurrences descend
            past = [found for found in self._occurrences(wall) if found < instant]
            latest = max(past, default=None) if latest is None else max([latest, *past])
        return latest

    def _offsets(self, instant: datetime) -> list[timedelta]:
        nearby = [(instant + span).astimezone(self._zone) for span in _AROUND]
        return [moment.utcoffset() or timedelta(0) for moment in nearby]

    def _matching(self, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        """Yield the matching wall-clock times from `start`, without a zone."""
        try:
            from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only the extra has it
        except ImportError as error:
            raise MissingDependency("CronSource needs cronsim; pip install 'malflow[cron]'") from error
        try:
            yield from CronSim(self._expression, start.replace(tzinfo=None, microsecond=0), reverse=reverse)
        except CronSimError as error:
            raise ValueError(str(error)) from error

    def _occurrences(self, wall: datetime) -> list[datetime]:
        """Return the instants of a wall-clock time, ascending."""
        if self._runs_once:
            while not self._exists(wall):
                wall += _MINUTE
            return [self._in_utc(wall, fold=0)]
        if not self._exists(wall):
            return []
        return sorted({self._in_utc(wall, fold=0), self._in_utc(wall, fold=1)})

    def _exists(self, wall: datetime) -> bool:
        return self._in_utc(wall, fold=0).astimezone(self._zone).replace(tzinfo=None, fold=0) == wall

    def _in_utc(self, wall: datetime, *, fold: int) -> datetime:
        return wall.replace(tzinfo=self._zone, fold=fold).astimezone(UTC)
