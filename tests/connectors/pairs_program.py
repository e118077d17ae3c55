"""``python -m tests.connectors.pairs_program SOURCE SINK FOLDER SERVERS DSN NAME``: numbers from one system to another.

SOURCE is ``kafka`` (a topic) or ``changes`` (those of a table); SINK is ``postgres``, ``parquet`` or ``delta``. The run
ends when all is read that is there when it starts.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from malflow import StreamProvider
from malflow.connectors.delta import DeltaSink
from malflow.connectors.kafka import KafkaSource
from malflow.connectors.parquet import ParquetSink
from malflow.connectors.postgres import PostgresChanges, PostgresSink
from malflow.snapshot import FsspecBackend
from tests.kit.running import run_job

OUTPUT = "output"


def main(source: str, sink: str, folder: str, servers: str, dsn: str, name: str) -> None:
    """Run the job to the end of what is there."""

    def build(provider: StreamProvider) -> None:
        output = str(Path(folder) / OUTPUT)
        sinks: dict[str, Any] = {
            "postgres": lambda: PostgresSink(dsn, f"{name}_out", key=()),
            "parquet": lambda: ParquetSink(output),
            "delta": lambda: DeltaSink(output),
        }
        sources: dict[str, Any] = {
            "kafka": lambda: KafkaSource(name, servers=servers, decode="json", stop="latest"),
            "changes": lambda: PostgresChanges(dsn, [name], slot=name, until="now"),
        }
        numbers = provider.new_stream().source("numbers", sources[source]())
        keyed = numbers.map("n", number_of).key_distribute("rest", lambda msg: msg.value % 3)
        counted = keyed.stateful_map("count", lambda _, n, count: ({"n": n, "nth": count}, count + 1), int)
        counted.sink("output", sinks[sink]())

    run_job(build, FsspecBackend(f"{folder}/state", job="pair"))


def number_of(record: Any) -> int:
    number: int = record.new["n"] if hasattr(record, "new") else record
    return number


if __name__ == "__main__":
    main(*sys.argv[1:])
