"""``python -m tests.connectors.pairs_program SOURCE SINK FOLDER SERVERS DSN NAME [spark|WORKERS]``: counted numbers.

SOURCE is ``kafka`` (a topic) or ``changes`` (those of a table); SINK is ``kafka``, ``postgres``, ``parquet`` or
``delta``. The run ends when all is read that is there when it starts. With a number of workers each number takes 5 ms.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from malflow import StreamProvider
from malflow.connectors.kafka import KafkaSink, KafkaSource
from malflow.connectors.postgres import PostgresChanges, PostgresSink
from malflow.snapshot import FsspecBackend
from tests.kit.running import run_job

KEYS = 3
OUTPUT = "output"


def backend_of(folder: str) -> FsspecBackend:
    """Return where the snapshots are."""
    return FsspecBackend(f"{folder}/state", job="pair")


def pair(
    source: str, sink: str, folder: str, servers: str, dsn: str, name: str, *, seconds: float = 0
) -> Callable[[StreamProvider], None]:
    """Return the dataflow from one system into another; each number takes some seconds."""

    def build(provider: StreamProvider) -> None:
        output = str(Path(folder) / OUTPUT)
        sinks: dict[str, Any] = {
            "kafka": lambda: KafkaSink(f"{name}_out", servers=servers, encode="json", delivery="exactly-once"),
            "postgres": lambda: PostgresSink(dsn, f"{name}_out", key=()),
            "parquet": lambda: import_module("malflow.connectors.parquet").ParquetSink(output),
            "delta": lambda: import_module("malflow.connectors.delta").DeltaSink(output),
        }
        sources: dict[str, Any] = {
            "kafka": lambda: KafkaSource(name, servers=servers, decode="json", stop="latest"),
            "changes": lambda: PostgresChanges(dsn, [name], slot=name, until="now", require_old=False),
        }
        numbers = provider.new_stream().source("numbers", sources[source]())
        keyed = numbers.map("n", partial(number_of, seconds)).key_distribute("rest", lambda msg: msg.value % KEYS)
        counted = keyed.stateful_map("count", lambda _, n, count: ({"n": n, "nth": count}, count + 1), int)
        counted.sink("output", sinks[sink]())

    return build


def number_of(seconds: float, record: Any) -> int:
    time.sleep(seconds)
    number: int = record.new["n"] if hasattr(record, "new") else record
    return number


def main(*arguments: str) -> None:
    """Run the job to the current end of the input."""
    source, sink, folder, servers, dsn, name, *options = arguments
    workers = [int(option) for option in options if option.isdigit()]
    build = pair(source, sink, folder, servers, dsn, name, seconds=0.005 if workers else 0)
    run_job(build, backend_of(folder), spark_ticks=10 if "spark" in options else 0, parallelism=max(1, *workers, 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
