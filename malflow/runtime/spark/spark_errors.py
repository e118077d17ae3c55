"""The reasons in Spark's own errors, without their stack traces."""

from __future__ import annotations

import re
from itertools import takewhile

from malflow.runtime.transport.pickling import missing_module

__all__ = ["spark_message"]

_TRACEBACK = "Traceback (most recent call last):"
_OUT_OF_MEMORY = ("OutOfMemoryError", "bigger than spark.driver.maxResultSize")
_MEMORY = (
    "; Java ran out of memory: give it more by spark.driver.memory (on a cluster also spark.executor.memory, and "
    "spark.driver.maxResultSize for large output), or read fewer records at once by max_records_per_tick="
)
_PYTHON_MEMORY = (
    "; a process of Python ran out of memory: raise spark.executor.pyspark.memory if it is set, use more workers, or "
    "keep less in a state"
)
_NO_SPACE = "No space left on device"
_SPACE = (
    "; free some space in Spark's folder for temporary files: spark.local.dir or, on the machines of a cluster, "
    "SPARK_LOCAL_DIRS"
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


def spark_message(error: object) -> str:
    """Return the message of a Spark error without the stack traces in its text."""
    reason = _text(error).partition("=== Streaming Query ===")[0]
    before, *_ = reason.split(_TRACEBACK)
    lines = [line.strip() for line in before.splitlines()]
    telling = [line for line in lines if line and not line.startswith(_NOT_TELLING)]
    raised = _raised(reason.rpartition(_TRACEBACK)[2]) if _TRACEBACK in reason else telling[-1:]
    told = list(dict.fromkeys([*telling[:1], *raised]))
    return " ".join(told) + _advice(reason, " ".join(told)) or type(error).__name__


def _advice(reason: str, told: str) -> str:
    if any(it in reason for it in _OUT_OF_MEMORY):
        return _MEMORY
    if _NO_SPACE in reason:
        return _SPACE
    return _PYTHON_MEMORY if re.search(r"\bMemoryError\b", told) else missing_module(told)


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
