"""Arithmetic with timestamps of any type, for which a fact is unknown where the user's types refuse."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

from malflow.nodes import EpochsNode, Node
from malflow.operators.epochs.rounding import LimitedOutOfOrderness
from malflow.runtime.why_flow import Flow
from malflow.words import value_text

__all__ = [
    "THOUSAND",
    "ahead_of_clock",
    "at_line",
    "bound_in",
    "bound_of",
    "is_in_thousands",
    "is_number",
    "is_past",
    "may_be_in_other_units",
    "minus",
    "misfit",
    "newest_epoch",
    "per_second_of",
    "plus",
    "unit_of",
]

THOUSAND = 1_000
"""The ratio of neighbouring units: seconds, milliseconds, microseconds, nanoseconds."""

_AHEAD = timedelta(minutes=1)
"""A timestamp that is this far ahead of the clock is of the future."""

_UNITS = ((5e8, 4e9, 1), (5e11, 4e12, 1_000), (5e14, 4e15, 1_000_000), (5e17, 4e18, 1_000_000_000))
"""Numbers that are times from 1985 to 2096, and how many of their units make a second."""


def newest_epoch(flow: Flow, generator: int) -> Any:
    """Return the greatest epoch of a generator over all workers, or None."""
    return flow.after.table.epochs.get(flow.name(generator))


def bound_of(flow: Flow, generator: int) -> Any:
    """Return the bound of the usual generator; None for another one."""
    return bound_in(flow.node(generator))


def bound_in(node: Node) -> Any:
    """Return the bound of the usual generator of a node; None for another one."""
    logic = node.logic if isinstance(node, EpochsNode) else None
    made = logic.keywords.get("generator") if isinstance(logic, partial) else None
    return made.bound if isinstance(made, LimitedOutOfOrderness) else None


def may_be_in_other_units(bound: Any, lateness: Any) -> bool:
    """Whether a bound a thousand times as long would have let the records pass that are late."""
    return is_number(lateness) and is_number(bound) and 0 < bound < lateness <= bound * THOUSAND


def misfit(newest: Any, bound: Any, lateness: Any, line: str) -> str | None:
    """Return a sentence about a bound in other units than the timestamps; None if it does not seem to be.

    Args:
        newest: the newest timestamp.
        bound: the bound.
        lateness: the greatest lateness of a record.
        line: the line of the bound, in parentheses after a space; may be empty.
    """
    per_second = per_second_of(newest)
    if per_second is None or per_second < THOUSAND or not may_be_in_other_units(bound, lateness):
        return None
    return (
        f"The timestamps, such as {value_text(newest)}, fit {unit_of(per_second)}, but the bound of "
        f"{value_text(bound)}{line} does not seem to: in this unit, write {value_text(bound * THOUSAND)}."
    )


def at_line(flow: Flow, vertex: int) -> str:
    """Return the line that adds a vertex, in parentheses after a space; empty if unknown."""
    location = flow.program.vertices[vertex].location
    return f" ({location})" if location else ""


def is_in_thousands(bound: Any) -> bool:
    """Whether a bound is a whole number of thousands."""
    return isinstance(bound, int) and bound >= THOUSAND and bound % THOUSAND == 0


def per_second_of(stamp: Any) -> int | None:
    """Return how many units of a timestamp make a second; None if it is not a number that fits a time."""
    if not is_number(stamp):
        return None
    return next((each for low, high, each in _UNITS if low <= stamp <= high), None)


def unit_of(per_second: int | None) -> str:
    """Return the unit of which so many make a second."""
    names = {1: "seconds", 1_000: "milliseconds", 1_000_000: "microseconds", 1_000_000_000: "nanoseconds"}
    return names.get(per_second or 0, "no unit of time")


def ahead_of_clock(flow: Flow, stamp: Any) -> timedelta | None:
    """Return by how much a timestamp is ahead of the clock of the run; None if it is not, or no time."""
    now = flow.after.table.now
    per_second = per_second_of(stamp)
    try:
        if isinstance(stamp, datetime):
            time = stamp if stamp.tzinfo is not None else stamp.replace(tzinfo=UTC)
        elif isinstance(stamp, date):
            time = datetime(stamp.year, stamp.month, stamp.day, tzinfo=UTC)
        elif per_second is not None:
            time = datetime.fromtimestamp(stamp / per_second, UTC)
        else:
            return None
        # a time without a zone may be of any zone
        slack = timedelta(days=1) if isinstance(stamp, date) and getattr(stamp, "tzinfo", None) is None else _AHEAD
        return time - now if now is not None and time - now > slack else None
    except (OverflowError, ValueError):
        return None


def is_number(value: Any) -> bool:
    """Whether a value is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plus(stamp: Any, bound: Any) -> Any:
    """Return a timestamp plus a bound; None if that is unknown."""
    try:
        return None if stamp is None or bound is None else stamp + bound
    except Exception:  # noqa: BLE001 - times of the user's types may not be added
        return None


def minus(later: Any, earlier: Any) -> Any:
    """Return a difference; None if that is unknown."""
    try:
        return None if later is None or earlier is None else later - earlier
    except Exception:  # noqa: BLE001 - or subtracted
        return None


def is_past(stamp: Any, until: Any) -> bool:
    """Whether a timestamp is known to be at or after another."""
    try:
        return stamp is not None and bool(stamp >= until)
    except Exception:  # noqa: BLE001 - or compared
        return False
