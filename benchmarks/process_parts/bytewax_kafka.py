"""The source and the sink of bytewax's job on Kafka, which note when they open and have written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from process_parts.marks import Tally, note_ready

__all__ = ["MarkedSink", "MarkedSource"]


class MarkedSource(KafkaSource):
    """A topic up to its end."""

    def __init__(self, topic: str, servers: str, folder: str) -> None:
        super().__init__([servers], [topic], tail=False)
        self._folder = folder

    def build_part(self, *arguments: Any, **options: Any) -> Any:
        """Return the reader of a partition."""
        note_ready(self._folder)
        return super().build_part(*arguments, **options)


class MarkedSink(DynamicSink[Any]):
    """A topic of results, written by each worker."""

    def __init__(
        self, topic: str, servers: str, tally: Tally, measure: Callable[[Sequence[Any]], tuple[int, float]]
    ) -> None:
        self._sink = KafkaSink([servers], topic)
        self._how = (tally, measure)

    def build(self, *arguments: Any, **options: Any) -> _Part:
        """Return the writer of a worker."""
        return _Part(self._sink.build(*arguments, **options), *self._how)


class _Part(StatelessSinkPartition[Any]):
    def __init__(self, part: Any, tally: Tally, measure: Callable[[Sequence[Any]], tuple[int, float]]) -> None:
        self._part = part
        self._tally = tally
        self._measure = measure

    def write_batch(self, items: list[Any]) -> None:
        """Write results, wait until they are in the topic, and count the records and the people in them."""
        self._part.write_batch([_message_of(*item) for item in items])
        self._tally.note(*self._measure(items))

    def close(self) -> None:
        """Write the counts."""
        self._part.close()
        self._tally.write()


def _message_of(town: str, result: tuple[int, tuple[int, int]]) -> Any:
    window, (records, people) = result
    row = {"town": town, "window": window, "records": records, "people": people}
    return KafkaSinkMessage(town.encode(), json.dumps(row).encode())
