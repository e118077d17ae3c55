"""Timestamps of a batch as numbers of panes, and whether its records are on time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from malflow.columns.aggregates.accumulators import times_of
from malflow.columns.aggregates.kernels import Ints
from malflow.columns.column import Column
from malflow.event_time.panes import Panes, regular
from malflow.message import MAX
from malflow.records.columnar import Unfit

__all__ = ["check_times", "numbers_in", "pane_numbers", "window_times"]

_FAR = 1 << 62
"""Timestamps below it, and sizes, leave room in 64 bits for the bounds of panes."""

_TICK = timedelta.resolution


def window_times(timestamps: Sequence[Any]) -> Column:
    """Return timestamps as a column of 64-bit integers: integers, or datetimes in UTC or without a zone.

    Raises:
        Unfit: if they are others.
    """
    times = times_of(timestamps)
    if times is None or not times.is_sound() or numbers_in(times).dtype.kind == "f":
        raise Unfit("its timestamps are no integers, nor datetimes in UTC or without a zone")
    numbers = numbers_in(times)
    if numbers.dtype == np.int64:
        return times
    if numbers.dtype == np.uint64 and int(numbers.max()) >= _FAR:
        raise Unfit("a timestamp is too large")
    return Column(numbers.astype(np.int64))


def numbers_in(times: Column) -> Ints:
    """Return timestamps that are numbers as an array."""
    assert times.numbers is not None  # noqa: S101 - as `times_of` has seen
    return times.numbers


def pane_numbers(panes: Panes, times: Column) -> Ints:
    """Return the number of the pane of each timestamp.

    Raises:
        Unfit: if the panes are not all of one size, or begin or end beyond the range of the timestamps.
    """
    bounds = regular(panes)
    stamps = numbers_in(times)
    if bounds is None:
        raise Unfit("its windows are not all of one size, or of floats")
    origin, size = bounds
    if pa.types.is_timestamp(times.kind):
        if not isinstance(size, timedelta):
            raise Unfit("its windows are of numbers, and its timestamps are not")
        origin, size = (origin - datetime(1970, 1, 1, tzinfo=origin.tzinfo)) // _TICK, size // _TICK
    if type(origin) is not int or type(size) is not int or size >= _FAR:
        raise Unfit("its windows are not of integers")
    if int(stamps.min()) <= -_FAR or int(stamps.max()) >= _FAR:
        raise Unfit("a timestamp is too large")
    numbers: Ints = (stamps if not origin else stamps - origin) // size
    try:
        _ = panes.start(int(numbers.min())), panes.start(int(numbers.max()) + 1)
    except Exception as error:
        raise Unfit("a window begins or ends beyond the range of times") from error
    return numbers


def check_times(panes: Panes, numbers: Ints, epochs: Sequence[tuple[int, Any]], reached: Any) -> None:
    """Check that no record is in a pane that an epoch before it has closed.

    Args:
        panes: the panes.
        numbers: the number of each record's pane.
        epochs: the epochs between the records.
        reached: the last epoch before them, or None.

    Raises:
        Unfit: if one is.
    """
    try:
        _check_times(panes, numbers, epochs, reached)
    except (TypeError, ValueError, OverflowError) as error:
        raise Unfit("an epoch does not fit its windows") from error


def _check_times(panes: Panes, numbers: Ints, epochs: Sequence[tuple[int, Any]], reached: Any) -> None:
    least = horizon = None
    if reached is not None:
        least, horizon = _first_open(panes, reached)
    done = 0
    for position, epoch in epochs:
        if horizon is not None and epoch is not MAX and epoch < horizon:
            continue
        _check_part(numbers[done:position], least)
        done = position
        if epoch is MAX:
            if done < len(numbers):
                raise Unfit("records have come after the end")
            return
        least, horizon = _first_open(panes, epoch)
    _check_part(numbers[done:], least)


def _check_part(numbers: Ints, least: int | None) -> None:
    if least is not None and len(numbers) and int(numbers.min()) < least:
        raise Unfit("a record is late: an epoch has already closed its window")


def _first_open(panes: Panes, epoch: Any) -> tuple[int, Any]:
    """Return the number of the first pane that an epoch leaves open, and its last instant."""
    if epoch is MAX:
        raise Unfit("records have come after the end")
    number = panes.number(epoch)
    last = panes.last(number)
    return (number + 1, panes.last(number + 1)) if last <= epoch else (number, last)
