"""A sink that prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

from malflow.errors import MalflowError
from malflow.message import DataMessage
from malflow.sinks.contract import StatelessSinkImpl
from malflow.sinks.formatting import Formatter, checked_formatter, formatted
from malflow.type_parameters import K, T, V
from malflow.words import short_repr

__all__ = ["StdOutSink", "discard_output"]


class StdOutSink(StatelessSinkImpl[K, V, T]):
    """Print each message as a line ``{ key: 1, value: 2, timestamp: 3 }``, with the `repr` of each field.

    Lines appear at the end of each tick at the latest. When the reader of a pipe exits, as with ``| head``, the run
    ends as if by `stop`, and the program exits with the status of a broken pipe, 141.

    If the standard output was closed before the program began, nothing is printed.

    Args:
        formatter: returns the object to print for a message, as its ``str`` on one line.

    Attributes:
        reader_is_gone: whether the reader of the pipe has exited.
    """

    on_driver = True
    _formatter: Formatter | None = None  # also in subclasses whose constructor does not call this one

    def __init__(self, *, formatter: Formatter | None = None) -> None:
        self._formatter = checked_formatter("StdOutSink", formatter)

    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Print one message."""
        self._write(self._text([msg.key], [msg.value], [msg.timestamp]))

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Print a batch of messages with one write."""
        self._write(self._text(keys, values, timestamps))

    def flush(self) -> None:
        """Flush the lines to the terminal, file or pipe."""
        if sys.stdout is None:
            return
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            self._note_broken_pipe()

    def _text(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> str:
        if self._formatter is None:
            return "".join([_line(*record) for record in zip(keys, values, timestamps, strict=True)])
        return "".join([f"{it}\n" for it in formatted(self._formatter, keys, values, timestamps)])

    def _write(self, text: str) -> None:
        if sys.stdout is None:  # closed before Python began, as by `>&-`; print does nothing then either
            return
        try:
            sys.stdout.write(text)
        except BrokenPipeError:
            self._note_broken_pipe()
        except UnicodeEncodeError as error:
            lacking = short_repr(error.object[error.start : error.end])
            raise MalflowError(
                f"the standard output has the encoding {error.encoding}, which lacks {lacking}; set "
                "PYTHONIOENCODING=utf-8 or PYTHONUTF8=1 in the environment, or pass formatter="
            ) from error

    def _note_broken_pipe(self) -> None:
        """Discard all further output, including Python's own at exit."""
        self.reader_is_gone = True
        discard_output(sys.stdout)


def discard_output(stream: TextIO) -> None:
    """Discard all further output of a standard stream if its reader is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)


def _line(key: object, value: object, timestamp: object) -> str:
    return f"{{ key: {key!r}, value: {value!r}, timestamp: {timestamp!r} }}\n"
