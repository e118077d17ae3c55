"""The lateness of records: their distance to the epochs by which they are late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

__all__ = ["greatest_lateness", "merge_lateness"]

_DIFFERENCES = (Real, Decimal, timedelta)


def greatest_lateness(late: Mapping[int, Any], timestamps: Sequence[Any], so_far: Any = None) -> Any:
    """Return the greatest difference between the epoch and the timestamp of late records.

    Args:
        late: the epochs by which records are late, by index of the record.
        timestamps: the timestamps of all records.
        so_far: the greatest lateness of earlier records, or None.

    Returns:
        A number or a timedelta; None if timestamps of this type can't be subtracted.

    >>> greatest_lateness({0: 10, 2: 12}, [7, 13, 11]), greatest_lateness({0: "b"}, ["a"])
    (3, None)
    """
    for index, epoch in late.items():
        try:
            behind = epoch - timestamps[index]
            if (so_far is None or behind > so_far) and isinstance(behind, _DIFFERENCES) and behind == behind:  # noqa: PLR0124 - NaN
                so_far = behind
        except (TypeError, ArithmeticError):
            continue
    return so_far


def merge_lateness(greatest: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Update the greatest lateness of each generator with that in `more`, if greater."""
    for name, behind in more.items():
        try:
            if name not in greatest or behind > greatest[name]:
                greatest[name] = behind
        except TypeError:  # timestamps of another type
            continue
