"""Checks of the options of connectors: each error names the connector, the option, its value and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from malflow.callables import deferred, without_result
from malflow.durations import checked_seconds
from malflow.errors import GraphError
from malflow.words import short_repr

__all__ = [
    "checked_wait",
    "names_of",
    "require_choice_or_function",
    "require_count",
    "require_delivery",
    "require_encoding",
    "require_flag",
    "require_function",
    "require_mapping",
    "require_name",
    "require_on_data_loss",
    "require_one_of",
    "require_start",
]

_LONGEST_WAIT = 1e6
"""The longest wait that every platform supports, in seconds."""


def require_one_of(asked_by: str, option: str, value: object, choices: Sequence[str | None]) -> None:
    """Check an option that is one of a few texts, or None if that is a choice.

    Raises:
        GraphError: if it is not one of the choices.

    >>> require_one_of("KafkaSink", "delivery", "twice", ("exactly-once", "at-least-once"))
    Traceback (most recent call last):
    malflow.errors.GraphError: KafkaSink delivery must be 'exactly-once' or 'at-least-once'; got 'twice'
    """
    if not (value is None or isinstance(value, str)) or value not in choices:
        raise GraphError(f"{asked_by} {option} must be {_listed(choices)}; got {short_repr(value)}")


def require_delivery(asked_by: str, value: object) -> None:
    """Check the delivery of a transactional sink.

    Raises:
        GraphError: if it is not one of the two choices.
    """
    require_one_of(asked_by, "delivery", value, ("exactly-once", "at-least-once"))


def require_on_data_loss(asked_by: str, value: object) -> None:
    """Check what a sink does if its ledger lacks a committed transaction.

    Raises:
        GraphError: if it is not one of the two choices.
    """
    require_one_of(asked_by, "on_data_loss", value, ("fail", "continue"))


def require_choice_or_function(
    asked_by: str, option: str, value: object, choices: Sequence[str], *, needs_result: bool = True
) -> None:
    """Check an option that is one of a few texts, or a function.

    Args:
        asked_by: the class that has the option.
        option: the name of the option.
        value: the value that the user passed.
        choices: the texts.
        needs_result: whether the function must return something.

    Raises:
        GraphError: if it is neither.
    """
    if isinstance(value, str) and value in choices:
        return
    fault = (without_result if needs_result else deferred)(value)
    if not callable(value) or fault:
        named = ", ".join(map(repr, choices))
        got = fault if callable(value) else short_repr(value)
        raise GraphError(f"{asked_by} {option} must be {named} or a plain function; got {got}")


def require_function(asked_by: str, option: str, value: object) -> None:
    """Check an option that is a function whose result is used.

    Raises:
        GraphError: if it can't be called, is a coroutine or a generator function, or returns nothing.
    """
    fault = without_result(value)
    if not callable(value) or fault:
        got = fault if callable(value) else short_repr(value)
        raise GraphError(f"{asked_by} {option} must be a plain function; got {got}")


def require_encoding(asked_by: str, value: object) -> None:
    """Check the name of an encoding of text.

    Raises:
        GraphError: if it is unknown, or converts no text.
    """
    try:
        is_known = isinstance(value, str) and "".encode(value) is not None
    except LookupError:
        is_known = False
    if not is_known:
        raise GraphError(f"{asked_by} encoding must be the name of a text encoding, such as 'utf-8'; got {value!r}")


def require_start(asked_by: str, value: object) -> None:
    """Check the start of a source: ``"earliest"``, ``"latest"`` or a time.

    Raises:
        GraphError: if it is something else, or the time has no zone.
    """
    if not isinstance(value, datetime):
        if value not in ("earliest", "latest"):
            raise GraphError(
                f"{asked_by} start must be 'earliest', 'latest' or an aware datetime; got {short_repr(value)}"
            )
    elif value.tzinfo is None:
        raise GraphError(f"{asked_by} start must be an aware datetime; got {value!r}; write datetime(..., tzinfo=UTC)")


def checked_wait(asked_by: str, option: str, value: Any) -> float:
    """Return the seconds of a wait.

    Raises:
        GraphError: if it is not a span of time, not above 0, or too long for some platform.
    """
    seconds = checked_seconds(asked_by, option, value)
    if seconds > _LONGEST_WAIT:
        raise GraphError(f"{asked_by} {option} must be {_LONGEST_WAIT:g} seconds at most; got {short_repr(value)}")
    return seconds


def require_count(asked_by: str, option: str, value: object, *, least: int = 1, most: int | None = None) -> None:
    """Check a whole number.

    Raises:
        GraphError: if it is not an integer, or out of range.

    >>> require_count("HttpSink", "retries", -1, least=0)
    Traceback (most recent call last):
    malflow.errors.GraphError: HttpSink retries must be a whole number, at least 0; got -1
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise GraphError(f"{asked_by} {option} must be a whole number, {bounds}; got {short_repr(value)}")


def require_flag(asked_by: str, option: str, value: object, *, optional: bool = False) -> None:
    """Check an option that is True or False, or None if that is allowed.

    Raises:
        GraphError: if it is another value.
    """
    if not isinstance(value, bool) and not (optional and value is None):
        choices = "True, False or None" if optional else "True or False"
        raise GraphError(f"{asked_by} {option} must be {choices}; got {short_repr(value)}")


def require_name(asked_by: str, option: str, value: object, what: str = "a name", *, optional: bool = False) -> None:
    """Check a text that is not empty, or None if that is allowed.

    Args:
        asked_by: the class that has the option.
        option: the name of the option.
        value: the value that the user passed.
        what: the kind of thing it names, with its article.
        optional: whether it may be None.

    Raises:
        GraphError: if it is neither.
    """
    if value is None and optional:
        return
    if not isinstance(value, str) or not value:
        or_none = " or None" if optional else ""
        raise GraphError(f"{asked_by} {option} must be {what}{or_none}, as text; got {short_repr(value)}")


def names_of(asked_by: str, option: str, value: Iterable[str], *, what: str = "names") -> tuple[str, ...]:
    """Return the names in a list, which may be empty.

    Raises:
        GraphError: if it is a single text or not a list, or a name is empty or duplicate.

    >>> names_of("PostgresSink", "key", "id", what="columns")
    Traceback (most recent call last):
    malflow.errors.GraphError: PostgresSink key must be a list of columns; write ['id']
    """
    if isinstance(value, str):
        raise GraphError(f"{asked_by} {option} must be a list of {what}; write [{value!r}]")
    if not isinstance(value, Iterable) or isinstance(value, bytes | Mapping):
        raise GraphError(f"{asked_by} {option} must be a list of {what}; got {short_repr(value)}")
    names = tuple(value)
    if not all(isinstance(name, str) and name for name in names):
        raise GraphError(f"{asked_by} {option} must be a list of {what}, none empty; got {short_repr(list(names))}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise GraphError(f"{asked_by} {option} has {twice[0]!r} more than once; got {short_repr(list(names))}")
    return names


def require_mapping(asked_by: str, option: str, value: Any, what: str) -> None:
    """Check settings for another library, or None. The error shows no values, which may be secrets.

    Raises:
        GraphError: if it is not a mapping, or a name is not text.
    """
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise GraphError(f"{asked_by} {option} must be a dict of {what}; got a {type(value).__name__}")
    for name in value:
        if not isinstance(name, str):
            raise GraphError(f"{asked_by} {option} must be a dict of {what}, with texts as names; got {name!r}")


def _listed(choices: Sequence[str | None]) -> str:
    """Return choices in words, for a sentence.

    >>> _listed(("fail", "drop", None))
    "'fail', 'drop' or None"
    """
    *first, last = map(repr, choices)
    return f"{', '.join(first)} or {last}" if first else last
