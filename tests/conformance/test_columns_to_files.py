"""Columns that go from files to files, on every runtime."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from malflow import StreamProvider
from malflow.connectors.delta import DeltaSink
from malflow.connectors.parquet import ParquetSink, ParquetSource
from malflow.records.columnar import rows_made
from malflow.sinks import VecSink
from tests.kit.log import Log

SIZE = 30_000


class Watched:
    """A part of a source that logs how many rows its process has made."""

    def __init__(self, part: Any, log: Log) -> None:
        self._part = part
        self._log = log
        self._before = rows_made()

    def poll_batch(self, limit: int) -> Any:
        found = self._part.poll_batch(limit)
        self._note()
        return found

    def is_finished(self) -> bool:
        self._note()
        return bool(self._part.is_finished())

    def snapshot(self) -> Any:
        self._note()
        return self._part.snapshot()

    def _note(self) -> None:
        self._log.append((os.getpid(), rows_made() - self._before))


class WatchedFiles(ParquetSource):
    def __init__(self, path: Path, log: Log) -> None:
        super().__init__(path)
        self._log = log

    def build_part(self, part: Any, state: Any) -> Any:
        return Watched(super().build_part(part, state), self._log)


@pytest.mark.parametrize("kind", ["parquet", "delta", "vec"])
def test_no_row_is_made(any_parallelism: Any, kind: str, tmp_path: Path, log: Log, store: Any) -> None:
    words = pa.array([f"{number % 7}" for number in range(SIZE)]).dictionary_encode()
    for name in range(2):
        numbers = range(name * SIZE, (name + 1) * SIZE)
        pq.write_table(pa.table({"n": numbers, "word": words}), tmp_path / f"{name}.parquet")
    sink: Any = {"parquet": ParquetSink, "delta": DeltaSink, "vec": VecSink}[kind](
        *([] if kind == "vec" else [tmp_path / "out"])
    )

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("rows", WatchedFiles(tmp_path / "*.parquet", log)).sink("out", sink)

    before = rows_made()
    any_parallelism(build, store, timedelta(milliseconds=50)).execute()
    assert rows_made() == before
    assert {made for _, made in log} == {0}
    if kind == "vec":
        found = pa.Table.from_batches([frame.batch for frame in sink.frames()])["n"].to_pylist()
        assert rows_made() == before
    else:
        found = [n for file in (tmp_path / "out").rglob("*.parquet") for n in pq.read_table(file)["n"].to_pylist()]
    assert sorted(found) == list(range(2 * SIZE))
