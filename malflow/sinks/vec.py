"""A sink that collects messages in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic

from malflow.message import DataMessage
from malflow.sinks.contract import StatelessSinkImpl
from malflow.type_parameters import K, T, V

__all__ = ["VecSink"]


class VecSink(StatelessSinkImpl[K, V, T], Generic[K, V, T]):
    """Collect `DataMessage` objects in the order of arrival, across runs, for tests and notebooks.

    >>> vec = VecSink()
    >>> vec.sink(DataMessage("a", 1, 0))
    >>> list(vec)
    [DataMessage(key='a', value=1, timestamp=0)]
    """

    on_driver = True

    def __init__(self) -> None:
        self._keys: list[K] = []
        self._values: list[V] = []
        self._timestamps: list[T] = []

    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Collect one message."""
        self._keys.append(msg.key)
        self._values.append(msg.value)
        self._timestamps.append(msg.timestamp)

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Collect a batch of messages; message objects are created on access."""
        self._keys.extend(keys)
        self._values.extend(values)
        self._timestamps.extend(timestamps)

    @property
    def values(self) -> list[V]:
        """The values collected so far, in the order of arrival."""
        return list(self._values)

    def drain(self) -> list[DataMessage[K, V, T]]:
        """Return the messages collected so far, and clear the sink."""
        messages = list(self)
        for column in (self._keys, self._values, self._timestamps):
            column.clear()
        return messages

    def __iter__(self) -> Iterator[DataMessage[K, V, T]]:
        return map(DataMessage, self._keys, self._values, self._timestamps)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"VecSink({list(self)!r})"
