"""Pickling of errors for the driver, and the extraction of reasons from Spark's own errors."""

from __future__ import annotations

import pickle
from contextlib import suppress
from itertools import takewhile
from typing import Any

from malflow.diagnostics import short_repr
from malflow.errors import MalflowError, OperatorError, RunFailed, error_text
from malflow.runtime.spark.pickling import missing_module

__all__ = ["dumps_error", "loaded_error", "spark_message"]

_TRACEBACK = "Traceback (most recent call last):"
_OUT_OF_MEMORY = ("OutOfMemoryError", "bigger than spark.driver.maxResultSize")
_MEMORY = (
    "; Java ran out of memory: give it more by spark.driver.memory (on a cluster also spark.executor.memory, and "
    "spark.driver.maxResultSize for large output), or read fewer records at once by max_records_per_tick="
)
_NOT_TELLING = (
    "at ",
    'File "',
    "^",
    "~",
    "...",
    "SQLSTATE",
    "Driver stacktrace",
    "Caused by",
    "The above exception",
    "During handling",
)


def dumps_error(error: MalflowError) -> bytes:
    """Pickle an error with its cause, or with descriptions in place of parts that can't be pickled."""
    from pyspark import cloudpickle  # noqa: PLC0415 - only the extra has it

    for shape in (_whole_error, _bare_error):
        with suppress(BaseException):  # classes of the user may raise any
            data: bytes = cloudpickle.dumps(shape(error))
            pickle.loads(data)  # noqa: S301 - just written
            return data
    return pickle.dumps((RunFailed(str(error)), None, ()))


def _whole_error(error: MalflowError) -> tuple[Any, ...]:
    return error, error.__cause__, tuple(getattr(error, "__notes__", ()))


def _bare_error(error: MalflowError) -> tuple[Any, ...]:
    """Return an error's parts, with text in place of those that can't be pickled."""
    notes = tuple(getattr(error, "__notes__", ()))
    cause: Any = error.__cause__
    if cause is not None and not _is_picklable(cause):
        cause = RuntimeError(f"{type(cause).__name__}: {error_text(cause)}")
    if not isinstance(error, OperatorError):
        return type(error)(str(error)), cause, notes
    record = (error.key, error.value, error.timestamp)
    facts = tuple(fact if _is_picklable(fact) else short_repr(fact) for fact in record) if error.has_record else None
    return OperatorError(str(error), operator=error.operator, record=facts, callback=error.callback), cause, notes  # type: ignore[arg-type] # three facts


def _is_picklable(thing: Any) -> bool:
    from pyspark import cloudpickle  # noqa: PLC0415 - only the extra has it

    try:
        pickle.loads(cloudpickle.dumps(thing))  # noqa: S301 - just written
    except BaseException:  # noqa: BLE001 - classes of the user may raise any
        return False
    return True


def loaded_error(data: bytes) -> Exception:
    """Unpickle an error that `dumps_error` pickled."""
    error: Exception
    error, cause, notes = pickle.loads(data)  # noqa: S301 - of this run
    error.__cause__ = cause
    for note in notes:
        if note not in getattr(error, "__notes__", ()):  # most errors are pickled with theirs
            error.add_note(note)
    return error


def spark_message(error: object) -> str:
    """Return the message of a Spark error without the stack traces in its text."""
    reason = _text(error).partition("=== Streaming Query ===")[0]
    before, *_ = reason.split(_TRACEBACK)
    lines = [line.strip() for line in before.splitlines()]
    telling = [line for line in lines if line and not line.startswith(_NOT_TELLING)]
    raised = _raised(reason.rpartition(_TRACEBACK)[2]) if _TRACEBACK in reason else telling[-1:]
    told = list(dict.fromkeys([*telling[:1], *raised]))
    advice = _MEMORY if any(it in reason for it in _OUT_OF_MEMORY) else missing_module(" ".join(told))
    return " ".join(told) + advice or type(error).__name__


def _raised(trace: str) -> list[str]:
    """Return the exception lines of a traceback, after the frames and before Java's trace."""
    lines = iter(trace.splitlines())
    raised = next((line for line in lines if line.strip() and not line.startswith((" ", "\t"))), "")
    more = takewhile(lambda line: line.strip() and not line.strip().startswith(_NOT_TELLING), lines)
    return [line.strip() for line in (raised, *more) if line.strip()]


def _text(error: object) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the text of a Java error can't be read once Java is gone
        return ""
