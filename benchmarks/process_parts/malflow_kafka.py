"""The source and the sink of the job on Kafka, which note when they open and have written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from malflow.connectors.kafka import KafkaSink, KafkaSource
from process_parts.marks import Tally, note_ready

__all__ = ["MarkedSink", "MarkedSource"]

_SETTINGS = {"fetch.wait.max.ms": 10}
"""Opening a partition takes two requests, each of which waits as long behind a fetch of those opened before."""


class MarkedSource(KafkaSource):
    """A topic up to its end, of JSON unless decoded otherwise."""

    def __init__(self, topic: str, servers: str, folder: str, decode: Any = "json") -> None:
        super().__init__(topic, servers=servers, decode=decode, stop="latest", settings=_SETTINGS)
        self._folder = folder

    def build_part(self, part: Any, state: Any) -> Any:
        """Return the reader of a partition."""
        note_ready(self._folder)
        return super().build_part(part, state)


class MarkedSink(KafkaSink[Any, Any, Any]):
    """A topic of results, written by each process itself."""

    def __init__(self, topic: str, servers: str, folder: str) -> None:
        super().__init__(topic, servers=servers, encode="json")
        self._tally = Tally(folder)

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Write results, and count the records and the people in them."""
        super().sink_batch(keys, values, timestamps)
        self._tally.note(sum(row["records"] for row in values), sum(row["people"] for row in values))

    def flush(self) -> None:
        """Wait until the results are in the topic."""
        is_needed = self._unflushed
        super().flush()
        if is_needed:
            self._tally.touch()

    def close(self) -> None:
        """Write the counts."""
        super().close()
        self._tally.write()
