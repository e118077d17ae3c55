"""The operators that set timestamps, and checks of timestamps and epochs: ordered, and instants."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import partial
from numbers import Number
from operator import attrgetter
from typing import Any, NoReturn, Protocol

from malflow.errors import failures
from malflow.message import MAX, MIN
from malflow.operators.columns import column_of, read_each, read_one
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.failures.guard import Guard
from malflow.operators.failures.surviving import Calls, MessageView, attempt, faults_of, same_item, settled, without
from malflow.records.batch import Batch
from malflow.records.column import is_column, listed
from malflow.words import error_text, short_repr

__all__ = [
    "AssignTimestamps",
    "AssignTimestampsByField",
    "ConvertTimestamps",
    "as_python",
    "check_epoch",
    "checked_timestamps",
    "is_fixed",
    "is_moment",
    "uncomparable",
]

_COMPARISON = re.compile("compare|not supported between")

_SURE = frozenset({int, str, bytes, bool, date, datetime, time, timedelta, type(MIN), type(MAX)})
"""Types whose values all equal themselves."""

_ZONE = attrgetter("tzinfo")

_FINER = ("nanosecond", "nanoseconds")
"""The attributes of pandas datetimes and timedeltas with more precision than Python's."""

_ZONES = "set one on all of them, such as .replace(tzinfo=UTC)"
_MIXED = f"has no zone, and others have one; {_ZONES}"
_KINDS = (Number, datetime, date, time, timedelta, str, bytes)
"""Types that can't be compared with each other; a datetime is a date, but is not compared with one."""


class _NamesRecords(Protocol):
    """An operator, as far as checks need it: it names the record with a fault."""

    def fail(self, error: Exception | str, batch: Batch, rest: Iterator[Any], /) -> Exception: ...


def checked_timestamps(operator: _NamesRecords, batch: Batch, timestamps: Sequence[Any]) -> Sequence[Any]:
    """Check that a batch's timestamps can be compared, and return them.

    A timestamp that can't be compared would make others late. Numpy numbers become Python's. These don't overflow when
    a bound is subtracted.

    Raises:
        OperatorError: at the first record whose timestamp has another type than earlier ones; is None; does not equal
            itself, like NaN and NaT; is a datetime in a zone whose offset changes; lacks a zone that others have, or
            the reverse; or has nanoseconds, which the microseconds of a window's bounds would lose.
    """
    if type(timestamps) is range or (is_column(timestamps) and timestamps.is_sound()):
        return timestamps
    timestamps = listed(timestamps)
    kinds = set(map(type, timestamps))
    if len(kinds) > 1 and len({_kind_of(kind) for kind in kinds} - {None}) > 1:
        raise _of_two_kinds(operator, batch, timestamps)
    by_the_wall = tuple(kind for kind in kinds if issubclass(kind, datetime) and kind.__lt__ is datetime.__lt__)
    if by_the_wall:
        _check_zones(operator, batch, timestamps, by_the_wall, len(kinds) == len(by_the_wall))
    unsure = kinds - _SURE
    if not unsure or (unsure == {float} and not [moment for moment in timestamps if moment != moment]):  # noqa: PLR0124
        return timestamps
    rest = iter(timestamps)
    finer = _FINER if any(hasattr(kind, part) for kind in unsure for part in _FINER) else ()
    narrow = any(kind.__module__ == "numpy" for kind in unsure)
    try:
        for moment in rest:
            if not is_moment(moment):
                _refuse(f"{moment!r} is not a timestamp", moment, "filter such records, or set one")
            if any(getattr(moment, part, 0) for part in finer):
                _raise_too_fine(moment)
        rest = iter(timestamps)
        return [as_python(moment) for moment in rest] if narrow else timestamps
    except Exception as error:
        stamped = Batch(batch.keys, batch.values, timestamps)
        raise operator.fail(error, stamped, rest) from error


def _check_zones(
    operator: _NamesRecords, batch: Batch, timestamps: Sequence[Any], kinds: tuple[type, ...], only_these: bool
) -> None:
    """Check datetimes that compare like Python's own: two of one zone by wall-clock time.

    When a clock is set back, an hour occurs twice, and its second occurrence appears to precede the end of the first.
    """
    moments: Sequence[Any] = timestamps if only_these else [it for it in timestamps if isinstance(it, kinds)]
    zone = moments[0].tzinfo
    if (zone is None or zone is UTC) and not [it for it in moments if it.tzinfo is not zone]:  # as in most streams
        return
    zones = {id(zone): zone for zone in map(_ZONE, moments)}
    moving = {key for key, zone in zones.items() if zone is not None and not is_fixed(zone)}
    if not moving and (len(zones) == 1 or id(None) not in zones):
        return
    rest = iter(timestamps)
    for moment in rest:
        reason = _fault_of(moment, moments[0], moving) if isinstance(moment, kinds) else None
        if reason is not None:
            raise operator.fail(f"its timestamp {moment} {reason}", Batch(batch.keys, batch.values, timestamps), rest)


def _fault_of(moment: Any, first: Any, moving: Container[int]) -> str | None:
    zone = moment.tzinfo
    if id(zone) in moving:
        return (
            f"is in zone {zone}, whose offset changes: Python compares its times by wall-clock time, so an hour that "
            "occurs twice is one hour; convert it, by .astimezone(UTC)"
        )
    if (zone is None) == (first.tzinfo is None):
        return None
    has, had = ("no zone", "one") if zone is None else ("a zone", "none")
    return f"has {has}, and earlier ones have {had}, such as {first}; {_ZONES}"


def _kind_of(given: type) -> type | None:
    """Return the kind of types with which a type's values can be compared; None if unknown."""
    return next((kind for kind in _KINDS if issubclass(given, kind)), None)


def _of_two_kinds(operator: _NamesRecords, batch: Batch, timestamps: Sequence[Any]) -> Exception:
    """Return the error for the first timestamp that can't be compared with earlier ones."""
    rest = iter(timestamps)
    known = ((moment, _kind_of(type(moment))) for moment in rest)
    first, kind = next((moment, kind) for moment, kind in known if kind is not None)
    other = next(moment for moment, own in known if own not in (None, kind))
    problem = (
        f"its timestamp {short_repr(other)} is of type {type(other).__name__}, and earlier ones are of type "
        f"{type(first).__name__}, such as {short_repr(first)}; set timestamps of one type by .assign_timestamps()"
    )
    return operator.fail(problem, Batch(batch.keys, batch.values, timestamps), rest)


def is_fixed(zone: tzinfo) -> bool:
    """Whether a time zone has a single offset; its times are then in wall-clock order."""
    if type(zone) is timezone:
        return True
    try:
        return zone.utcoffset(None) is not None
    except Exception:  # noqa: BLE001 - a zone that needs a time to answer has no fixed offset
        return False


def check_epoch(epoch: Any, timestamp: Any = MIN) -> None:
    """Check an epoch that a generator returned.

    Args:
        epoch: the epoch.
        timestamp: that of the record passed to the generator.

    Raises:
        ValueError: if it does not equal itself.
        TypeError: if it can't be compared with the timestamp.
    """
    if not is_moment(epoch):
        _refuse(f"the generator returned {epoch!r}, which is not an epoch", epoch, "return None for no epoch")
    _ = epoch < timestamp


def as_python(moment: Any) -> Any:
    """Return the Python number that equals a numpy number; other timestamps unchanged.

    Raises:
        TypeError: if there is no such number.
    """
    kind = type(moment)
    if kind.__module__ != "numpy" or kind.__name__ in ("datetime64", "timedelta64"):
        return moment
    number = moment.item()
    if type(number).__module__ == "numpy":
        raise TypeError(f"{moment!r} is a number of fixed width without an equal one in Python; use float({moment})")
    return number


def is_moment(moment: Any) -> bool:
    """Whether an object can be a timestamp: not None, and equal to itself, including the parts of a tuple.

    >>> is_moment(1.5), is_moment(float("nan")), is_moment((1, float("nan"))), is_moment(None)
    (True, False, False, False)
    """
    if moment is None or moment != moment:  # noqa: PLR0124 - NaN and NaT
        return False
    return not isinstance(moment, tuple) or all(is_moment(part) for part in moment)


def uncomparable(error: Exception) -> Exception | str:
    """Return a hint for an error in malflow's comparison of a timestamp with an epoch, else the error."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    ours = last is not None and last.tb_frame.f_globals.get("__name__", "").startswith(__package__)
    if not ours or not isinstance(error, TypeError) or not _COMPARISON.search(error_text(error)):
        return error
    if "offset-naive" in error_text(error):
        return f"its timestamp or an earlier one {_MIXED}"
    return (
        f"a timestamp or the generator's result can't be compared with the previous epoch: {error_text(error)}; use "
        "one "
        "type "
        "of timestamp for all records, by .assign_timestamps(), and the same type for epochs"
    )


def _raise_too_fine(moment: Any) -> NoReturn:
    raise ValueError(
        f"{moment!r} has nanoseconds, and the bounds of windows have microseconds: it could be after the last instant "
        "of its own window; round it, as by .floor('us'), or use its nanoseconds as an integer"
    )


def _refuse(what: str, moment: Any, mend: str) -> NoReturn:
    why = "" if moment is None else ": it does not equal itself, so nothing is before or after it"
    raise ValueError(f"{what}{why}; {mend}")


class AssignTimestamps(Operator):
    """Set each record's timestamp by the assigner; drop the epochs of the old time, except `MAX`."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Compute the timestamp column."""
        if self.guard is not None:
            return self._guarded(batch, self.guard)
        timestamps = checked_timestamps(self, batch, self.stamp_column(batch))
        epochs = [(position, epoch) for position, epoch in batch.epochs if epoch is MAX]
        return (Batch(batch.keys, batch.values, timestamps, epochs),)

    def stamp_column(self, batch: Batch) -> Sequence[Any]:
        """Return the timestamp of each record; an error names the record."""
        rest = iter(batch.values)
        try:
            return self.stamps_of(batch, rest)
        except failures() as error:
            raise self.fail(error, batch, rest) from error

    def stamps_of(self, batch: Batch, rest: Iterator[Any]) -> Sequence[Any]:
        """Return the timestamps of a batch's records; `rest` iterates over its values."""
        return self.call_each(self.callback, batch, rest)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        """Drop the records without a timestamp that can be compared with others."""
        checked: Callable[[Any], Any] = _comparable
        if guard.takes_turns:  # a record that can't be compared fails at its turn, before later ones
            checked = _compared(_FaultFinder())
        with MessageView(guard, self.context, batch) as view:
            stamps, failed = attempt(guard, *self.stamp_calls(batch, guard, view, checked), batch)
        batch = guard.renewed(batch)
        epochs = [(position, epoch) for position, epoch in batch.epochs if epoch is MAX]
        before = without(failed, Batch(batch.keys, batch.values, batch.timestamps, epochs))
        kept = stamps if not failed else without(failed, Batch(None, stamps, stamps)).values
        return (self._stamped(before, kept, guard),)

    def stamp_calls(
        self, batch: Batch, guard: Guard, view: Iterator[Any], checked: Callable[[Any], Any]
    ) -> tuple[Calls, Iterable[Any]]:
        """Return the calls that make timestamps of items, and the items, for a batch with a guard."""
        del batch, guard
        assigner = self.callback
        return lambda rest: (checked(assigner(message)) for message in rest), view

    def _stamped(self, batch: Batch, stamps: Sequence[Any], guard: Guard) -> Batch:
        """Return the batch with its timestamps, without those that can't be compared with the first."""
        finder = _FaultFinder()
        try:
            return Batch(batch.keys, batch.values, checked_timestamps(finder, batch, stamps), batch.epochs)
        except _Fault:
            pass
        checked, failed = attempt(guard, partial(map, _compared(finder)), stamps, batch)
        return without(failed, Batch(batch.keys, batch.values, checked, batch.epochs))


class ConvertTimestamps(Operator):
    """Replace each timestamp and each epoch with the function's result; `MAX` stays."""

    keeps_columns = True

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Convert the column of timestamps, and the epochs."""
        convert, rest = self.callback, iter(listed(batch.timestamps))
        try:
            converted = [convert(moment) for moment in rest]
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        stamps = checked_timestamps(self, batch, converted)
        try:
            epochs = [(at, epoch if epoch is MAX else convert(epoch)) for at, epoch in batch.epochs]
        except failures() as error:
            raise self.error(error, about="an epoch") from error
        return (Batch(batch.keys, batch.values, stamps, epochs),)


class AssignTimestampsByField(AssignTimestamps):
    """Set each record's timestamp to a field of its value: an item of a mapping, or an attribute of any other value.

    Args:
        context: the operator's context.
        field: the name of the item or attribute, or the place of an item of a tuple.
    """

    def __init__(self, context: OperatorContext, field: str | int) -> None:
        super().__init__(context)
        self._field = field

    def stamp_column(self, batch: Batch) -> Sequence[Any]:
        """Return the column of this name, or read the field of each value."""
        column = column_of(batch, self._field)
        return super().stamp_column(batch) if column is None else column

    def stamps_of(self, batch: Batch, rest: Iterator[Any]) -> Sequence[Any]:
        """Read the field of each value."""
        return read_each(batch, self._field, rest, _INSTEAD)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        """Drop the records without a timestamp. Of a column, only these become values."""
        column = column_of(batch, self._field)
        if column is None or not is_column(column):
            return super()._guarded(batch, guard)
        faults = faults_of(column, _comparable)
        kept = without(sorted(faults), Batch(None, range(len(column)), column))
        finder = _FaultFinder()
        try:
            checked_timestamps(finder, kept, kept.timestamps)
        except _Fault:
            checked = _compared(finder)
            faults |= faults_of(column, checked, [*kept.values])
        left, _ = settled(guard, batch, faults)
        epochs = [(position, epoch) for position, epoch in batch.epochs if epoch is MAX]
        staying = without(left, Batch(batch.keys, batch.values, column, epochs))
        return (staying.with_timestamps(checked_timestamps(finder, staying, staying.timestamps)),)

    def stamp_calls(
        self, batch: Batch, guard: Guard, view: Iterator[Any], checked: Callable[[Any], Any]
    ) -> tuple[Calls, Iterable[Any]]:
        """Return the calls that make timestamps of the field's column, or of values."""
        del view
        column, field = column_of(batch, self._field), self._field
        if column is not None:
            return partial(map, checked), guard.turns(column, batch, same_item)
        return lambda rest: (checked(read_one(value, field)) for value in rest), guard.turns(batch.values, batch)


_INSTEAD = "pass a function of the message if timestamps are not in a field, or call .filter() first"


class _Fault(Exception):
    """A timestamp that can't be compared with others; its text is the reason."""


class _FaultFinder:
    """Stands for the operator in a check of timestamps, to catch the fault instead of the error that names a record."""

    def fail(self, error: Exception | str, _batch: Batch, _rest: Iterator[Any]) -> Exception:
        """Return the fault."""
        return _Fault(f"{error}")


def _compared(finder: _FaultFinder) -> Callable[[Any], Any]:
    """Return a check that a timestamp can be compared with the first one that it was called with."""
    first: list[Any] = []

    def checked(stamp: Any) -> Any:
        pair = [*first, _comparable(stamp)]
        found = checked_timestamps(finder, Batch(None, pair, pair), pair)[-1]
        if not first:
            first.append(stamp)
        return found

    return checked


def _comparable(stamp: Any) -> Any:
    if not is_moment(stamp):
        raise ValueError(f"{stamp!r} is not a timestamp")
    return stamp
