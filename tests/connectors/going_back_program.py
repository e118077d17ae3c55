"""``python -m tests.connectors.going_back_program SOURCE ADDRESS FOLDER``: numbers of a source, written to Parquet.

SOURCE is ``kafka``, ``changes``, ``redis``, ``lines`` or ``parquet``. The run ends when all is read that is there when
it starts.
"""

from __future__ import annotations

import sys
from typing import Any

from malflow import StreamProvider
from malflow.connectors.parquet import ParquetSink, ParquetSource
from malflow.snapshot import FsspecBackend
from malflow.sources import TextFileSource
from tests.kit.running import run_job

NAME = "numbers"


def source_of(kind: str, address: str) -> Any:
    """Return a source of the numbers at an address."""
    if kind == "kafka":
        from malflow.connectors.kafka import KafkaSource  # noqa: PLC0415 - each needs its own library

        return KafkaSource(NAME, servers=address, decode="text", stop="latest")
    if kind == "changes":
        from malflow.connectors.postgres import PostgresChanges  # noqa: PLC0415

        return PostgresChanges(address, [NAME], slot=NAME, until="now", require_old=False)
    if kind == "redis":
        from malflow.connectors.redis import RedisStreamSource  # noqa: PLC0415

        return RedisStreamSource(address, NAME, field="n", stop="latest")
    if kind == "parquet":
        return ParquetSource(f"{address}/*.parquet")
    return TextFileSource(f"{address}/*.txt")


def row_of(record: Any) -> dict[str, int]:
    """Return a row with the number that a record is."""
    if hasattr(record, "new"):
        return {"n": record.new["n"]}
    return {"n": int(record["n"] if isinstance(record, dict) else record)}


def main(kind: str, address: str, folder: str) -> None:
    """Run the job."""

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", source_of(kind, address))
        numbers.map("row", row_of).sink("out", ParquetSink(f"{folder}/out"))

    run_job(build, FsspecBackend(f"{folder}/state", job="back"))


if __name__ == "__main__":
    main(*sys.argv[1:])
