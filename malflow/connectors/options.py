"""Checks of the options of connectors, and sources with a policy for records that can't be read."""

from __future__ import annotations

from copy import copy
from datetime import datetime
from typing import Any, Self

from malflow.checks import check_choice, check_choice_or_function, checked_seconds
from malflow.errors import GraphError
from malflow.failures import OnError
from malflow.words import short_repr

__all__ = [
    "Handling",
    "RejectingSource",
    "check_delivery",
    "check_encoding",
    "check_on_data_loss",
    "check_start",
    "checked_timeout",
    "keeps_rejected",
]

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


_WORDS = ("fail", "skip", "dead_letter")

Handling = Any
"""How a reader handles a record that it can't read: a word, or the user's function."""


class RejectingSource:
    """The base of sources with a policy for records that can't be read.

    Attributes:
        policy: the policy.
    """

    policy: OnError | None = None

    def set_policy(self, asked_by: str, on_error: object) -> Handling:
        """Set the policy from an ``on_error=`` argument; return how readers handle a record that they can't read.

        Args:
            asked_by: the class of the source.
            on_error: the argument: a word, a function of the error, or an `OnError` with a word.

        Raises:
            GraphError: if the argument is invalid.
        """
        if isinstance(on_error, OnError):
            if on_error.fate not in _WORDS or on_error.retry is not None:
                words = ", ".join(map(repr, _WORDS))
                raise GraphError(
                    f"{asked_by} on_error takes an OnError with one of {words}, and without retry=; got "
                    f"{short_repr(on_error)}"
                )
            self.policy = on_error
            return on_error.fate
        check_choice_or_function(asked_by, "on_error", on_error, _WORDS, returns=False)
        self.policy = OnError(on_error) if isinstance(on_error, str) else OnError("skip")  # type: ignore[arg-type]
        return on_error

    def with_policy(self, policy: OnError) -> Self:
        """Return the source with another policy.

        Args:
            policy: the policy; its fate must be a word.

        Raises:
            GraphError: if a source can't have it.
        """
        other = copy(self)
        other.handle(other.set_policy(type(self).__name__, policy))
        return other

    def handle(self, handling: Handling) -> None:
        """Set how readers handle a record that they can't read."""
        raise NotImplementedError


def keeps_rejected(handling: Handling) -> bool:
    """Whether a reader passes unreadable records to its host. The host counts them or makes letters of them."""
    return handling in ("skip", "dead_letter")
