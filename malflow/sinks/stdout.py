"""A sink that prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TypeVar

from malflow.message import DataMessage
from malflow.sinks.contract import StatelessSinkImpl

__all__ = ["StdOutSink"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class StdOutSink(StatelessSinkImpl[K, V, T]):
    """Print each message as a line ``{ key: 1, value: 2, timestamp: 3 }``, fields by their `repr`.

    Lines appear at the end of each tick at the latest. When nobody reads them any more, as behind ``| head``, the run
    ends as by `stop`, and the program with the exit code of a broken pipe, 141.

    Attributes:
        reader_is_gone: whether nobody reads any more.
    """

    on_driver = True

    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Print one message."""
        self._write(_line(msg.key, msg.value, msg.timestamp))

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Print a run of messages with one write."""
        self._write("".join([_line(*record) for record in zip(keys, values, timestamps, strict=True)]))

    def flush(self) -> None:
        """Hand the lines to the terminal, file or pipe."""
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            self._note_broken_pipe()

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
        except BrokenPipeError:
            self._note_broken_pipe()

    def _note_broken_pipe(self) -> None:
        """Send what is still printed nowhere, also what Python prints when it exits."""
        self.reader_is_gone = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, sys.stdout.fileno())
        finally:
            os.close(nowhere)


def _line(key: object, value: object, timestamp: object) -> str:
    return f"{{ key: {key!r}, value: {value!r}, timestamp: {timestamp!r} }}\n"
