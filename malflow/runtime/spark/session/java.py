"""The Java of a session: its loss, its noise, and the reasons in Spark's own errors."""

from __future__ import annotations

import logging
import re
import sys
import traceback
from functools import cache
from itertools import takewhile
from types import ModuleType
from typing import TYPE_CHECKING, Any

from malflow.runtime.transport.pickling import missing_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "end_quietly",
    "is_lost_connection",
    "mute_lost_java",
    "spark_message",
]

_SILENT = logging.NullHandler()
_LOGGERS = (None, "py4j.java_gateway", "py4j.clientserver")
"""py4j logs each request that failed to the root logger, and each callback that failed to its own."""

_MUTED = "malflow_handles_errors"
"""The attribute of a server that is muted."""


def mute_lost_java(session: SparkSession) -> None:
    """From now on, keep PySpark from reporting the death of Java on standard error.

    It would write a traceback for each request that finds the connection broken, and one of the server that reads
    accumulators from Java.
    """
    logging.getLogger("py4j").addHandler(_SILENT)  # errors that concern the user are raised
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_news)
    server: Any = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None and not hasattr(server, _MUTED):
        _mute(server)


def _mute(server: Any) -> None:
    before = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            before(request, address)

    server.handle_error = handle_error
    setattr(server, _MUTED, True)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record is anything but py4j's traceback of a lost connection."""
    if record.exc_info is None or record.module not in ("java_gateway", "clientserver"):
        return True
    return not is_lost_connection(record.exc_info[1])


def is_lost_connection(error: BaseException | None) -> bool:
    """Whether an error is py4j's error for a broken connection to Java. It does not contain the reason."""
    from py4j.protocol import Py4JError, Py4JJavaError  # noqa: PLC0415 - only the extra has it

    return isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError)


@cache
def end_quietly() -> None:
    """From now on, keep PySpark's daemon from printing a traceback in this process when Java is gone.

    When a session stops, Java closes the sockets of idle processes. They then try to write to them. On a Unix domain
    socket this fails at once.
    """
    for daemon in (sys.modules["__main__"], sys.modules.get("pyspark.daemon")):
        if getattr(daemon, "traceback", None) is traceback and hasattr(daemon, "manager"):
            vars(daemon)["traceback"] = _Muted("traceback")


class _Muted(ModuleType):
    """Stands for the module `traceback` in the daemon."""

    @staticmethod
    def print_exc() -> None:
        """Print the current exception, unless it is that of a closed socket."""
        if not isinstance(sys.exception(), ConnectionError | EOFError):
            traceback.print_exc()


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
