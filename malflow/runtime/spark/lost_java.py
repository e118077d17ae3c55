"""Suppression of PySpark's output to standard error once Java is gone, which the run's own error reports."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["is_lost_connection", "mute_lost_java"]

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
