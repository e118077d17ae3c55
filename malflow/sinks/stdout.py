"""A sink that prints."""

from __future__ import annotations

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

    Lines appear at the end of each tick at the latest.
    """

    on_driver = True

    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Print one message."""
        sys.stdout.write(_line(msg.key, msg.value, msg.timestamp))

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Print a run of messages with one write."""
        sys.stdout.write("".join([_line(*record) for record in zip(keys, values, timestamps, strict=True)]))

    def flush(self) -> None:
        """Hand the lines to the terminal, file or pipe."""
        sys.stdout.flush()


def _line(key: object, value: object, timestamp: object) -> str:
    return f"{{ key: {key!r}, value: {value!r}, timestamp: {timestamp!r} }}\n"
