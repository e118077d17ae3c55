"""Checks of the options that only connectors have; others are in `malflow.checks`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from malflow.checks import check_choice, checked_seconds
from malflow.errors import GraphError
from malflow.words import short_repr

__all__ = ["check_delivery", "check_encoding", "check_on_data_loss", "check_start", "checked_timeout"]

_LONGEST_WAIT = 1e6
"""The longest wait that every platform supports, in seconds."""


def check_delivery(asked_by: str, value: object) -> None:
    """Check the delivery of a transactional sink."""
    check_choice(asked_by, "delivery", value, ("exactly-once", "at-least-once"))


def check_on_data_loss(asked_by: str, value: object) -> None:
    """Check the choice of a sink for a ledger that lacks a committed transaction."""
    check_choice(asked_by, "on_data_loss", value, ("fail", "continue"))


def check_encoding(asked_by: str, value: object) -> None:
    """Check the name of an encoding of text; an encoding such as ``hex`` converts no text."""
    try:
        is_known = isinstance(value, str) and "".encode(value) is not None
    except LookupError:
        is_known = False
    if not is_known:
        raise GraphError(f"{asked_by} encoding must be the name of a text encoding, such as 'utf-8'; got {value!r}")


def check_start(asked_by: str, value: object) -> None:
    """Check the start of a source: ``"earliest"``, ``"latest"`` or a time with a zone."""
    if not isinstance(value, datetime):
        if value not in ("earliest", "latest"):
            raise GraphError(
                f"{asked_by} start must be 'earliest', 'latest' or an aware datetime; got {short_repr(value)}"
            )
    elif value.tzinfo is None:
        raise GraphError(f"{asked_by} start must be an aware datetime; got {value!r}; write datetime(..., tzinfo=UTC)")


def checked_timeout(asked_by: str, value: Any) -> float:
    """Return the seconds of a timeout that every platform supports."""
    seconds = checked_seconds(asked_by, "timeout", value)
    if seconds > _LONGEST_WAIT:
        raise GraphError(f"{asked_by} timeout must be {_LONGEST_WAIT:g} seconds at most; got {short_repr(value)}")
    return seconds
