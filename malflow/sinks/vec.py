"""A sink that collects messages in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Generic

from malflow.errors import MalflowError
from malflow.message import DataMessage, NoKey
from malflow.records.column import listed
from malflow.records.columnar import is_columnar, made
from malflow.sinks.contract import KeepingSinkImpl
from malflow.type_parameters import K, T, V
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.columns import Frame

__all__ = ["VecSink"]


class VecSink(KeepingSinkImpl[K, V, T], Generic[K, V, T]):
    """Collect `DataMessage` objects in the order of arrival, across runs, for tests and notebooks.

    Values that come as columns become Python objects when they are read, unless they are read by `frames`.

    >>> vec = VecSink()
    >>> vec.sink(DataMessage("a", 1, 0))
    >>> list(vec)
    [DataMessage(key='a', value=1, timestamp=0)]
    """

    on_driver = True

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Collect one message."""
        self.sink_batch((msg.key,), (msg.value,), (msg.timestamp,))

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Collect a batch of messages; message objects are created on access."""
        if not self._parts or self._parts[-1].frame is not None:
            self._parts.append(_Part())
        self._parts[-1].add(keys, values, timestamps)

    def keep(self, keys: Sequence[K] | None, values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Collect a batch of messages whose values may be columns."""
        if is_columnar(values) and values.is_arrow:
            self._parts.append(_Part(values.apart(), keys, timestamps))
        else:
            self.sink_batch([NoKey] * len(values) if keys is None else listed(keys), made(values), listed(timestamps))  # type: ignore[list-item] # of messages without key

    def frames(self) -> list[Frame]:
        """Return the values collected so far as batches of columns, in the order of arrival.

        Raises:
            MalflowError: if values came as Python objects; `to_columns` makes columns of them.
        """
        found: list[Any] = []
        for part in list(self._parts):
            if part.frame is None:
                raise MalflowError(
                    f"VecSink got {short_repr(part.values[0])}, which is a Python object and not a row of columns; add "
                    ".to_columns(name) before .sink(), or read VecSink.values"
                )
            found.append(part.frame.apart())
        return found

    @property
    def values(self) -> list[V]:
        """The values collected so far, in the order of arrival."""
        return list(chain.from_iterable(part.values for part in list(self._parts)))

    def drain(self) -> list[DataMessage[K, V, T]]:
        """Return the messages collected so far, and clear the sink."""
        messages = list(self)
        self._parts.clear()
        return messages

    def __iter__(self) -> Iterator[DataMessage[K, V, T]]:
        return chain.from_iterable(map(_Part.messages, list(self._parts)))

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __repr__(self) -> str:
        return f"VecSink({list(self)!r})"


class _Part:
    """Messages that have arrived one after the other, as lists or as one batch of columns.

    Args:
        frame: the values as columns; None to add lists.
        keys: the keys; None if no message has one.
        timestamps: the timestamps.
    """

    def __init__(self, frame: Any = None, keys: Any = None, timestamps: Any = None) -> None:
        self.frame = frame
        self._keys: Any = [] if frame is None else keys
        self._timestamps: Any = [] if frame is None else timestamps
        self._values: list[Any] | None = [] if frame is None else None

    @property
    def values(self) -> list[Any]:
        """The values as Python objects, made once."""
        if self._values is None:
            self._values = self.frame.apart().made()
        return self._values

    def add(self, keys: Iterable[Any], values: Iterable[Any], timestamps: Iterable[Any]) -> None:
        """Add messages to lists."""
        self._keys.extend(keys)
        self.values.extend(values)
        self._timestamps.extend(timestamps)

    def messages(self) -> Iterator[DataMessage[Any, Any, Any]]:
        """Iterate over the messages."""
        keys = repeat(NoKey, len(self)) if self._keys is None else self._keys
        return map(DataMessage, keys, self.values, self._timestamps)

    def __len__(self) -> int:
        return len(self.frame if self._values is None else self._values)
