"""``python -m tests.connectors.columns_program FOLDER KIND [spark]``: numbers into files, a few a tick.

Kinds are parquet, json and delta; and parquet-columns and delta-columns: from Parquet to the sink without a row. It has
points of its own, within commits.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from malflow import StreamProvider
from malflow.connectors.delta import DeltaSink
from malflow.connectors.delta.table import Table
from malflow.connectors.parquet import ArrowSource, ParquetSink
from malflow.connectors.staging.ledger import Ledger
from malflow.connectors.staging.places import LocalPlace
from malflow.records.columnar import rows_made
from malflow.sinks import JsonLinesSink
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import at_once
from tests.kit.running import add_failpoints, run_job

STEPS = (
    (LocalPlace, "publish", "publish"),
    (Ledger, "begin", "begin"),
    (Ledger, "finish", "finish"),
    (Table, "append_sealed", "append"),
)
"""The steps of a commit."""

SIZE = 12
SIZE_ON_SPARK = 4
OUTPUT = "out"


def run(folder: Path, kind: str, *, on_spark: bool = False) -> None:
    """Run the job to its end."""
    make: Any = {"parquet": ParquetSink, "json": JsonLinesSink, "delta": DeltaSink}[kind.partition("-")[0]]
    if kind.endswith("-columns"):
        _run_columns(folder, make(f"{folder / OUTPUT}"), on_spark=on_spark)
        return
    sink = make(f"{folder / OUTPUT}{'/' if kind == 'json' else ''}", formatter=lambda msg: {"n": msg.value})
    size = SIZE_ON_SPARK if on_spark else SIZE

    def build(provider: StreamProvider) -> None:
        script = [item for number in range(size) for item in (number, PAUSE)]
        numbers = provider.new_stream().source("numbers", ScriptedSource({"part": script}))
        keyed = numbers.key_distribute("parity", lambda msg: msg.value % 2)
        keyed.stateful_map("count", lambda _, value, n: (value, n + 1), int).sink("out", sink)

    run_job(build, at_once(folder / "state", job="numbers"), spark_ticks=2 if on_spark else 0)


def _run_columns(folder: Path, sink: Any, *, on_spark: bool) -> None:
    """Run a job without rows, from Parquet to the sink."""
    path = folder / "in.parquet"
    if not path.exists():
        size = SIZE_ON_SPARK if on_spark else SIZE
        pq.write_table(pa.table({"n": range(size), "word": [f"{at}" for at in range(size)]}), path)

    def build(provider: StreamProvider) -> None:
        source = ArrowSource(lambda: pq.ParquetFile(path).iter_batches(batch_size=2))
        provider.new_stream().source("numbers", source).sink("out", sink)

    before = rows_made()
    run_job(build, at_once(folder / "state", job="numbers"), spark_ticks=2 if on_spark else 0)
    assert rows_made() == before


def main(folder: Path, kind: str, *options: str) -> None:
    """Run the job with failpoints."""
    add_failpoints(*STEPS)
    run(folder, kind, on_spark="spark" in options)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
