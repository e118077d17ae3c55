"""``python -m tests.connectors.kafka.program FOLDER SERVERS IN OUT [spark]``: numbers from Kafka to Kafka, once.

It counts the numbers of each parity and writes ``number count`` to the partition of the parity, until each partition of
the input ends. It has points of its own, within the sink's calls.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import StreamProvider
from malflow.connectors.kafka import KafkaSink, KafkaSource
from malflow.connectors.kafka import transactions as kafka_transactions
from malflow.connectors.kafka.produce import produce_all
from malflow.sources import StatefulSource
from malflow.store.failpoint import failpoint
from tests.kit.backends import at_once
from tests.kit.running import run_job

FEW = 3
"""Records of each partition that a tick reads."""


class SlowSource(KafkaSource):
    """Reads few records at once, so that there are several transactions."""

    def build_part(self, part: Any, state: Any) -> Any:
        reader = super().build_part(part, state)
        poll = reader.poll_batch
        reader.poll_batch = lambda limit: poll(min(limit, FEW))  # type: ignore[method-assign] # for this test
        return reader


class DyingSink(KafkaSink[Any, Any, Any]):
    """Dies before its calls, where the environment says."""

    def prepare(self, transaction: int, /) -> Any:
        failpoint("sink-prepare")
        return super().prepare(transaction)

    def commit(self, handles: Sequence[Any]) -> None:
        if handles:
            failpoint("sink-commit")
        super().commit(handles)
        if handles:
            failpoint("sink-after-commit")


class DyingWriter(kafka_transactions.MarkedWriter):
    """Dies amid its transactions, where the environment says."""

    def _transact(self, records: Any, wanted: Any, deadline: float) -> None:
        if not records:
            super()._transact(records, wanted, deadline)
            return
        assert self._producer is not None
        self._producer.begin_transaction()
        produce_all(self._producer, records, deadline)
        self._producer.flush(30)
        failpoint("sink-produced")
        self._producer.abort_transaction(30)
        super()._transact(records, wanted, deadline)


def main(folder: Path, servers: str, topics: tuple[str, str], *options: str) -> None:
    """Run the job to its end."""
    if "sink-produced" in os.environ.get("MALFLOW_FAILPOINT", ""):
        sys.modules["malflow.connectors.kafka.sink"].MarkedWriter = DyingWriter  # type: ignore[attr-defined]
    source = SlowSource(topics[0], servers=servers, decode="json", stop="latest")
    sink = DyingSink(topics[1], servers=servers, delivery="exactly-once", encode="text", timeout=timedelta(minutes=1))

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(source))
        keyed = numbers.key_distribute("parity", lambda msg: msg.value % 2)
        counted = keyed.stateful_map("count", lambda _, value, n: (f"{value} {n + 1}", n + 1), int)
        counted.sink("out", sink)

    run_job(build, at_once(folder / "state", job=topics[1]), spark_ticks=5 if "spark" in options else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], (sys.argv[3], sys.argv[4]), *sys.argv[5:])
