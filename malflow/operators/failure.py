"""How a failure of user code is told."""

from __future__ import annotations

import functools
import re
import reprlib
from typing import Any

from malflow.errors import OperatorError

__all__ = ["describe", "operator_error", "shape_error", "shown"]

_LONGEST = 200
_SHAPE = re.compile("unpack|has no attribute ._seen.")
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _LONGEST
_short.maxdict = 20


def operator_error(
    operator: str, error: BaseException | str, record: tuple[Any, Any, Any] | None, callback: Any = None
) -> OperatorError:
    """Make the error that says which operator failed, why, at which record, and where the user's function stands.

    Args:
        operator: the operator's name.
        error: what user code raised, or a sentence that says what is wrong with what it gave.
        record: key, value and timestamp of the record at hand, if any.
        callback: the user's function or object.
    """
    reason = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    at = ""
    if record is not None:
        key, value, timestamp = map(shown, record)
        at = f" at key {key}, value {value}, timestamp {timestamp}"
    described = None if callback is None else describe(callback)
    by = "" if described is None else f"; in {described}"
    return OperatorError(
        f"operator '{operator}' failed{at}: {reason}{by}",
        operator=operator,
        record=record,
        callback=described,
    )


def describe(callback: Any) -> str:
    """Name a function or object of the user's, with file and line where it has them.

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


def shown(thing: object) -> str:
    """Show a user's object in an error: shortened, and never failing itself."""
    try:
        return _short.repr(thing)
    except Exception as error:  # noqa: BLE001 - a broken __repr__ must not hide the error that is being told
        return f"<{type(thing).__qualname__} whose repr raised {type(error).__name__}>"


def shape_error(error: Exception, expected: str) -> Exception | str:
    """Say what an answer should have been, where the error is that it could not be taken apart."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    in_malflow = last is not None and last.tb_frame.f_globals.get("__name__", "").startswith("malflow.operators")
    if in_malflow and isinstance(error, (TypeError, ValueError, AttributeError)) and _SHAPE.search(str(error)):
        return f"it must return {expected}; {error}"
    return error
