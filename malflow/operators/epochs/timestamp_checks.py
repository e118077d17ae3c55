"""Checks of timestamps and epochs: anything ordered that equals itself, and a time that is an instant."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from numbers import Number
from operator import attrgetter
from typing import Any, NoReturn

from malflow.diagnostics import short_repr
from malflow.errors import error_text
from malflow.message import MAX, MIN
from malflow.operators.contract import Operator
from malflow.records.batch import Batch

__all__ = ["as_python", "check_epoch", "check_timestamps", "is_fixed", "is_moment", "uncomparable"]

_COMPARISON = re.compile("compare|not supported between")

_SURE = frozenset({int, str, bytes, bool, date, datetime, time, timedelta, type(MIN), type(MAX)})
"""Types whose every value equals itself."""

_ZONE = attrgetter("tzinfo")

_FINER = ("nanosecond", "nanoseconds")
"""The attributes of the part that datetimes and timedeltas of pandas have beyond Python's."""

_ZONES = "give all of them one, such as .replace(tzinfo=UTC)"
_MIXED = f"has no zone, and others have one; {_ZONES}"
_KINDS = (Number, datetime, date, time, timedelta, str, bytes)
"""Types of which no two can be compared; a datetime is a date, too, but is not compared with one."""


def check_timestamps(operator: Operator, batch: Batch, timestamps: Sequence[Any]) -> Sequence[Any]:
    """Return the timestamps of a batch's records, having checked that all can be compared.

    One that can't would make others late. Numbers of numpy become Python's, which don't overflow when a bound is
    subtracted.

    Raises:
        OperatorError: at the first record whose timestamp is of another kind than those before; or is None or, as NaN
            and NaT, does not equal itself; or is a datetime in a zone whose offset changes, or one without a zone
            beside others that have one; or has nanoseconds, which the microseconds of a window's bounds would lose.
    """
    if type(timestamps) is range:
        return timestamps
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
                _refuse(f"{moment!r} is not a timestamp", moment, "filter such records, or give them one")
            if any(getattr(moment, part, 0) for part in finer):
                _refuse_nanoseconds(moment)
        rest = iter(timestamps)
        return [as_python(moment) for moment in rest] if narrow else timestamps
    except Exception as error:
        stamped = Batch(batch.keys, batch.values, timestamps)
        raise operator.fail(error, stamped, rest) from error


def _check_zones(
    operator: Operator, batch: Batch, timestamps: Sequence[Any], kinds: tuple[type, ...], only_these: bool
) -> None:
    """Check datetimes of classes that compare as Python's own: two of one zone by the clock on the wall.

    Where a clock is set back, an hour comes twice, and its second time seems to be before the end of the first.
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
            f"is in zone {zone}, whose offset changes: Python compares its times by the clock on the wall, so that "
            "an hour that comes twice is one hour; give the instant, by .astimezone(UTC)"
        )
    if (zone is None) == (first.tzinfo is None):
        return None
    has, had = ("no zone", "one") if zone is None else ("a zone", "none")
    return f"has {has}, and those before have {had}, as {first}; {_ZONES}"


def _kind_of(given: type) -> type | None:
    """Return the kind of type whose values this type's can be compared with; None where that is not known."""
    return next((kind for kind in _KINDS if issubclass(given, kind)), None)


def _of_two_kinds(operator: Operator, batch: Batch, timestamps: Sequence[Any]) -> Exception:
    """Return the error for the first timestamp that can't be compared with those before."""
    rest = iter(timestamps)
    known = ((moment, _kind_of(type(moment))) for moment in rest)
    first, kind = next((moment, kind) for moment, kind in known if kind is not None)
    other = next(moment for moment, own in known if own not in (None, kind))
    problem = (
        f"its timestamp {short_repr(other)} is of type {type(other).__name__}, and those before are of type "
        f"{type(first).__name__}, as {short_repr(first)}; give all records timestamps of one type, by "
        ".assign_timestamps()"
    )
    return operator.fail(problem, Batch(batch.keys, batch.values, timestamps), rest)


def is_fixed(zone: tzinfo) -> bool:
    """Whether a time zone has one offset, so that times in it are in the order of the clock on the wall."""
    if type(zone) is timezone:
        return True
    try:
        return zone.utcoffset(None) is not None
    except Exception:  # noqa: BLE001 - a zone that needs a time to answer has no offset of its own
        return False


def check_epoch(epoch: Any, timestamp: Any = MIN) -> None:
    """Check an epoch that a generator returned.

    Args:
        epoch: the epoch.
        timestamp: that of the record which it was asked about.

    Raises:
        ValueError: if it does not equal itself.
        TypeError: if it can't be compared with the timestamp.
    """
    if not is_moment(epoch):
        _refuse(f"the generator returned {epoch!r}, which is not an epoch", epoch, "return None for no epoch")
    _ = epoch < timestamp


def as_python(moment: Any) -> Any:
    """Return the number of Python that equals one of numpy; other timestamps as they are.

    Raises:
        TypeError: if there is none.
    """
    kind = type(moment)
    if kind.__module__ != "numpy" or kind.__name__ in ("datetime64", "timedelta64"):
        return moment
    number = moment.item()
    if type(number).__module__ == "numpy":
        raise TypeError(f"{moment!r} is a number of fixed width without an equal one in Python; give float({moment})")
    return number


def is_moment(moment: Any) -> bool:
    """Whether something can be a timestamp: it equals itself, as do the parts of a tuple, and it is not None.

    >>> is_moment(1.5), is_moment(float("nan")), is_moment((1, float("nan"))), is_moment(None)
    (True, False, False, False)
    """
    if moment is None or moment != moment:  # noqa: PLR0124 - as NaN and NaT
        return False
    return not isinstance(moment, tuple) or all(is_moment(part) for part in moment)


def uncomparable(error: Exception) -> Exception | str:
    """Return advice for an error of malflow's own comparison of a timestamp with an epoch, else the error."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    ours = last is not None and last.tb_frame.f_globals.get("__name__", "").startswith(__package__)
    if not ours or not isinstance(error, TypeError) or not _COMPARISON.search(error_text(error)):
        return error
    if "offset-naive" in error_text(error):
        return f"its timestamp or those before: one {_MIXED}"
    return (
        f"a timestamp or the generator's result can't be compared with the epoch before: {error_text(error)}; use one "
        "type "
        "of timestamp for all records, by .assign_timestamps(), and the same type for epochs"
    )


def _refuse_nanoseconds(moment: Any) -> NoReturn:
    raise ValueError(
        f"{moment!r} has nanoseconds, and the bounds of windows have microseconds: it could be after the last instant "
        "of its own window; round it, as by .floor('us'), or give its nanoseconds as an integer"
    )


def _refuse(what: str, moment: Any, mend: str) -> NoReturn:
    why = "" if moment is None else ": it does not equal itself, so that nothing is before or after it"
    raise ValueError(f"{what}{why}; {mend}")
