"""Build error messages for failures of user code."""

from __future__ import annotations

import functools
import os
import re
from inspect import currentframe
from pathlib import Path
from typing import Any

from malflow.errors import OperatorError, error_text, short_repr

__all__ = ["describe", "location", "operator_error", "shape_error", "short_repr"]

_SHAPE = re.compile("unpack|has no attribute ._seen.")
_PACKAGE = f"{Path(__file__).parent}{os.sep}"
_NOT_THE_USERS = (_PACKAGE, f"{Path(os.__file__).parent}{os.sep}", "<frozen ", "<malflow ")


def operator_error(
    operator: str,
    error: BaseException | str,
    record: tuple[Any, Any, Any] | None,
    callback: Any = None,
    *,
    about: str = "",
) -> OperatorError:
    """Return the error that names the operator, the cause, the record and the location of the user's function.

    Args:
        operator: the operator's name.
        error: the exception that user code raised, or a sentence that says what is wrong with its result.
        record: key, value and timestamp of the record being processed, if any.
        callback: the user's function or object.
        about: the subject if it is not a record, such as ``part 'a'``.
    """
    reason = error if isinstance(error, str) else f"{type(error).__name__}: {error_text(error)}"
    at = f" at {about}" if about else ""
    if record is not None:
        key, value, timestamp = map(short_repr, record)
        at = f" at key {key}, value {value}, timestamp {timestamp}"
    place = _place(error, callback)
    by = f"; in {place}" if place else ""
    return OperatorError(
        f"operator '{operator}' failed{at}: {reason}{by}", operator=operator, record=record, callback=place
    )


def _place(error: BaseException | str, callback: Any) -> str | None:
    """Return the user's function with its location, and the function that raised, if it is another."""
    raised = None if isinstance(error, str) else _raised_in(error)
    if callback is None or type(callback).__module__.startswith("malflow."):
        return raised and raised[0]
    try:
        described = describe(callback)
    except Exception:  # noqa: BLE001 - an odd __getattr__ must not hide the error being reported
        described = f"an object of class {type(callback).__qualname__}"
    if raised is None or raised[1] in described:
        return described
    return f"{described}, raised in {raised[0]}" if described.endswith(")") else raised[0]


def _raised_in(error: BaseException) -> tuple[str, str] | None:
    """Return the user's innermost function in a traceback with its line, and where it is defined."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_NOT_THE_USERS) and "site-packages" not in code.co_filename:
            name = code.co_qualname.rpartition("<locals>.")[2]
            found = (f"{name} ({code.co_filename}:{trace.tb_lineno})", f"({code.co_filename}:{code.co_firstlineno})")
        trace = trace.tb_next
    return found


def describe(callback: Any) -> str:
    """Return the name of a user's function or object, with file and line if available.

    >>> describe(len)
    'len'
    """
    while isinstance(callback, functools.partial):
        callback = callback.func
    for target in (
        callback,
        getattr(callback, "__func__", None),
        type(callback).__call__ if callable(callback) else None,
    ):
        code = getattr(target, "__code__", None)
        if code is not None:
            name = getattr(callback, "__qualname__", type(callback).__qualname__)
            return f"{name.rpartition('<locals>.')[2]} ({code.co_filename}:{code.co_firstlineno})"
    return getattr(callback, "__qualname__", None) or f"an object of class {type(callback).__qualname__}"


def location() -> str | None:
    """Return the ``file:line`` of the user's code that called malflow."""
    frame = currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def shape_error(error: Exception, expected: str) -> Exception | str:
    """Return a message with the expected result, if the error is that a result could not be unpacked."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    in_malflow = last is not None and last.tb_frame.f_globals.get("__name__", "").startswith("malflow.operators")
    if in_malflow and isinstance(error, (TypeError, ValueError, AttributeError)) and _SHAPE.search(error_text(error)):
        got = f"got {type(error.obj).__name__}" if isinstance(error, AttributeError) else error_text(error)
        return f"it must return {expected}; {got}"
    return error
