"""Sources that emit instants: periodic ones, those of a cron expression, and the start of a job."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Literal

from malflow.checks import check_choice, checked_duration
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.event_time.panes import zone_of
from malflow.message import NoKey, NoKeyType
from malflow.sources.contract import StatefulSourceImpl, StatefulSourcePartition
from malflow.sources.cron import Schedule
from malflow.words import short_repr

__all__ = ["CronSource", "PeriodicSource", "StartSource"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta.resolution

Missed = Literal["all", "latest", "none"]


class _Instants(StatefulSourceImpl[NoKeyType, datetime, datetime, datetime | None]):
    """A source of one part that emits instants; the value and the timestamp of a record are the instant, in UTC.

    An instant is emitted in the first tick at or after it. So records don't depend on when a source is polled, and a
    repeated tick emits the same ones.
    """

    keyed = False

    def __init__(self, *, until: datetime | None, missed: Missed) -> None:
        kind = type(self).__name__
        check_choice(kind, "missed", missed, ("all", "latest", "none"))
        if until is not None and (not isinstance(until, datetime) or until.tzinfo is None):
            raise GraphError(f"{kind} needs a datetime with a time zone as its until; got {short_repr(until)}")
        self.until = until
        self.missed = missed

    @abstractmethod
    def after(self, instant: datetime) -> Iterator[datetime]:
        """Yield the instants after the given one, ascending, in UTC."""

    @abstractmethod
    def before(self, instant: datetime) -> datetime | None:
        """Return the last instant before the given one, or None."""

    def list_parts(self) -> Iterable[NoKeyType]:
        """Return the only part, `NoKey`."""
        return [NoKey]

    def build_part(self, part: NoKeyType, state: datetime | None) -> _InstantsReader:
        """Return a reader that continues after the last instant emitted or skipped."""
        del part
        return _InstantsReader(self, state)


class _InstantsReader(StatefulSourcePartition[datetime, datetime, datetime | None]):
    """Emits the instants that the clock has reached.

    Args:
        source: the source.
        last: the last instant emitted or skipped; None at the start of the job.
    """

    def __init__(self, source: _Instants, last: datetime | None) -> None:
        self._source = source
        self._last = last
        self._now: datetime | None = None
        self._started: datetime | None = None

    def set_clock(self, now: datetime, started: datetime) -> None:
        """Set the time of the tick and the start of the run.

        A new job emits the instants from its first tick, including one exactly at that time.
        """
        self._now = now
        if self._last is None:
            self._last = now - _TICK
        if self._started is None:
            self._started = started
            self._leave_out_missed(self._last, started)

    def _leave_out_missed(self, last: datetime, started: datetime) -> None:
        """Skip the instants between the last run and this one that `missed` excludes."""
        if self._source.missed == "none":
            self._last = max(last, started - _TICK)
        elif self._source.missed == "latest":
            latest = self._source.before(started)
            self._last = last if latest is None else max(last, latest - _TICK)

    def poll(self) -> tuple[datetime, datetime] | None:
        """Return the next instant if the clock has reached it."""
        values, timestamps = self.poll_batch(1)
        return (values[0], timestamps[0]) if values else None

    def poll_batch(self, limit: int) -> tuple[list[datetime], list[datetime]]:
        """Return the next instants up to the time of the tick."""
        if self._last is None or self._now is None:
            return [], []
        end = self._now if self._source.until is None else min(self._now, self._source.until)
        found: list[datetime] = []
        for instant in islice(self._source.after(self._last), limit):
            if instant > end:
                break
            found.append(instant)
        if found:
            self._last = found[-1]
        return found, list(found)

    def is_finished(self) -> bool:
        """Whether the next instant is after the end."""
        if self._source.until is None or self._last is None:
            return False
        following = next(self._source.after(self._last), None)
        return following is None or following > self._source.until

    def snapshot(self) -> datetime | None:
        """Return the last instant emitted or skipped; None before the first tick."""
        return self._last


class PeriodicSource(_Instants):
    """Emit an instant at regular intervals: a trigger that does not depend on other input.

    The instants are multiples of `every` since 1970-01-01T00:00 UTC, plus `offset`, and don't depend on when the job
    started. The first is at or after the job's first tick.

    Args:
        every: the interval between two instants.
        offset: shifts the instants; only its remainder modulo `every` counts.
        until: no instant after this one is emitted; None for a source without an end.
        missed: which of the instants that passed while the job was not running to emit: ``"all"``, the ``"latest"``, or
            ``"none"``.

    Raises:
        GraphError: if an argument is invalid.

    >>> from itertools import islice
    >>> source = PeriodicSource(timedelta(minutes=15))
    >>> [f"{it:%H:%M}" for it in islice(source.after(datetime(2026, 1, 1, 9, 20, tzinfo=UTC)), 3)]
    ['09:30', '09:45', '10:00']
    """

    def __init__(
        self,
        every: Duration,
        *,
        offset: Duration = timedelta(0),
        until: datetime | None = None,
        missed: Missed = "all",
    ) -> None:
        super().__init__(until=until, missed=missed)
        self.every = checked_duration("PeriodicSource", "every", every)
        shift = (
            offset
            if isinstance(offset, timedelta)
            else checked_duration("PeriodicSource", "offset", offset, may_be_zero=True)
        )
        self.offset = shift % self.every

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Yield the instants after the given one."""
        origin = _EPOCH + self.offset
        number = (instant - origin) // self.every
        while True:
            number += 1
            yield origin + number * self.every

    def before(self, instant: datetime) -> datetime:
        """Return the last instant before the given one."""
        origin = _EPOCH + self.offset
        return origin - (origin - instant) // self.every * self.every - self.every


class CronSource(_Instants):
    """Emit the instants of a cron expression, such as ``"30 2 * * *"`` for half past two each night.

    The expression has five fields (minute, hour, day of the month, month, day of the week), or six with seconds first.
    Needs ``pip install 'malflow[cron]'``.

    Clock changes are handled as in Debian's cron: a time that occurs twice runs once, one that is skipped runs right
    after the gap, and an expression with ``*`` as its hour runs in each hour.

    Args:
        expression: the cron expression.
        zone: the time zone of the expression: its name, or a tzinfo.
        until: as for `PeriodicSource`.
        missed: as for `PeriodicSource`.

    Raises:
        GraphError: if the expression or the zone is malformed.
        MissingDependency: if cronsim is not installed.

    >>> from itertools import islice
    >>> def runs(expression, start):
    ...     return [f"{it:%d %H:%M}" for it in islice(CronSource(expression, "America/New_York").after(start), 3)]
    >>> runs("30 1 * * *", datetime(2024, 11, 2, 12, tzinfo=UTC))  # 1:30 comes twice on the 3rd
    ['03 05:30', '04 06:30', '05 06:30']
    >>> runs("30 2 * * *", datetime(2024, 3, 9, 12, tzinfo=UTC))  # there is no 2:30 on the 10th
    ['10 07:00', '11 06:30', '12 06:30']
    >>> runs("0 * * * *", datetime(2024, 11, 3, 4, 30, tzinfo=UTC))
    ['03 05:00', '03 06:00', '03 07:00']
    """

    def __init__(
        self, expression: str, zone: str | tzinfo = "UTC", *, until: datetime | None = None, missed: Missed = "all"
    ) -> None:
        super().__init__(until=until, missed=missed)
        self.expression = expression
        try:
            self.zone = zone_of(zone)
        except GraphError as error:
            raise GraphError(f"CronSource zone {error}") from error
        try:
            self._schedule = Schedule(expression, self.zone)
            next(self.after(_EPOCH), None)
        except (ValueError, TypeError, AttributeError) as error:
            raise GraphError(f"CronSource needs a cron expression; got {short_repr(expression)}: {error}") from error

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Yield the instants after the given one."""
        return self._schedule.after(instant)

    def before(self, instant: datetime) -> datetime | None:
        """Return the last instant before the given one, or None."""
        return self._schedule.before(instant)


class StartSource(_Instants):
    """Emit a single instant, the time of the job's first tick. A job that resumes emits none."""

    def __init__(self) -> None:
        super().__init__(until=None, missed="all")

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Yield the instant right after the given one, forever."""
        while True:
            instant += _TICK
            yield instant

    def before(self, instant: datetime) -> datetime:
        """Return the instant right before the given one."""
        return instant - _TICK

    def build_part(self, part: NoKeyType, state: datetime | None) -> _InstantsReader:
        """Return the reader. It is finished if it has a position."""
        del part
        return _StartReader(self, state)


class _StartReader(_InstantsReader):
    """Emits only the first instant."""

    def __init__(self, source: _Instants, last: datetime | None) -> None:
        super().__init__(source, last)
        self._is_over = last is not None

    def poll_batch(self, limit: int) -> tuple[list[datetime], list[datetime]]:
        """Return the instant of the first tick, once."""
        if self._is_over or self._now is None:
            return [], []
        found, timestamps = super().poll_batch(min(limit, 1))
        self._is_over = bool(found)
        return found, timestamps

    def is_finished(self) -> bool:
        """Whether the instant has been emitted."""
        return self._is_over
