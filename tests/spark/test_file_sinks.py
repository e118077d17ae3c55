"""A file sink on Spark: exactly-once lines over rescales, a restart, and recovery from a damaged snapshot."""

from __future__ import annotations

import gzip
import json
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from malflow import RestartPolicy, SparkRuntime, StreamProvider
from malflow.connectors.parquet import ParquetSink
from malflow.sinks import JsonLinesSink, Share, TextFileSink
from malflow.snapshot import FsspecBackend, snapshots
from malflow.testing import ScriptedSource
from tests.kit.waiting import wait_until
from tests.spark.clusters import SECONDS
from tests.spark.flows import KEYS, PARTS, WRITTEN, add, as_line, assert_written_once, backend_at, sums

pytestmark = pytest.mark.spark

SIZE = 300


def runtime(spark: Any, backend: FsspecBackend, folder: Path, size: int = SIZE, **options: Any) -> SparkRuntime:
    """Write the sums of `flows` to a file, in some ten ticks."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return SparkRuntime(
        sums(size, TextFileSink(folder / WRITTEN, formatter=as_line)),
        backend,
        timedelta(milliseconds=50),
        2,
        spark=spark,
        max_records_per_tick=90,
        scratch=str(scratch),
        restart=RestartPolicy(2, timedelta(milliseconds=1)),
        **options,
    )


def lose_changes(folder: Path) -> None:
    """Remove what the next tick or snapshot may need."""
    for file in (folder / "scratch").rglob("*"):
        if file.is_file():
            file.unlink(missing_ok=True)


def flip(backend: FsspecBackend, folder: Path) -> None:
    """Damage the newest snapshot."""
    newest = max(it.id for it in snapshots(backend))
    manifest = folder / "state" / "sums" / "m" / f"{newest:020}.json"
    data = bytearray(manifest.read_bytes())
    data[len(data) // 2] ^= 1
    manifest.write_bytes(data)


@pytest.mark.fault("F7")
@pytest.mark.damages_snapshots("its newest one")
@pytest.mark.nightly
def test_each_line_is_written_once(spark: Any, tmp_path: Path) -> None:
    backend = backend_at(tmp_path)
    handle = runtime(spark, backend, tmp_path).start()
    for parallelism in (3, 1):
        tick = handle.progress.tick
        wait_until(lambda: handle.progress.tick > tick)  # noqa: B023 - at once
        handle.rescale(parallelism).result(SECONDS)
    wait_until(lambda: handle.progress.snapshot)
    lose_changes(tmp_path)
    assert handle.await_termination(SECONDS)
    assert_written_once(tmp_path / WRITTEN, SIZE)

    flip(backend, tmp_path)
    runtime(spark, backend, tmp_path, SIZE + 50, recovery="previous").execute()
    assert_written_once(tmp_path / WRITTEN, SIZE + 50)


class DiesOnce(ParquetSink[Any, Any, Any]):
    """Kills its process in the first `seal` of a run of the test."""

    def open_writer(self, share: Share) -> Any:
        writer = super().open_writer(share)
        seal = writer.seal

        def die_once() -> Any:
            sealed, marker = seal(), Path(self._folder, ".malflow", "died")
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return sealed

        writer.seal = die_once  # type: ignore[method-assign] # the sink's own
        return writer


@pytest.mark.fault("I3", "I24")
def test_folders_that_workers_write_have_each_record_once(spark: Any, tmp_path: Path) -> None:
    """Two sinks, over rescales, a process that dies while it seals, and another run on one thread."""
    folders = tmp_path / "rows", tmp_path / "lines"
    as_row = {"formatter": lambda msg: {"key": msg.key, "number": msg.timestamp, "total": msg.value}}
    schema = pa.schema({name: pa.int64() for name in ("key", "number", "total")})

    def build(provider: StreamProvider) -> None:
        scripts = {part: [*range(SIZE)] for part in PARTS}
        numbers = provider.new_stream().source("numbers", ScriptedSource(scripts))
        summed = numbers.key_distribute("key", lambda msg: msg.value % KEYS).stateful_map("sum", add, default=int)
        summed.sink("rows", DiesOnce(folders[0], schema=schema, **as_row))
        summed.sink("lines", JsonLinesSink(f"{folders[1]}/", suffix=".jsonl.gz", **as_row))

    (tmp_path / "scratch").mkdir()
    handle = SparkRuntime(
        build,
        backend_at(tmp_path),
        timedelta(milliseconds=200),
        2,
        spark=spark,
        max_records_per_tick=90,
        scratch=str(tmp_path / "scratch"),
        restart=RestartPolicy(2, timedelta(milliseconds=1)),
    ).start()
    for parallelism in (3, 1):
        tick = handle.progress.tick
        wait_until(lambda: handle.progress.tick > tick)  # noqa: B023 - at once
        handle.rescale(parallelism).result(SECONDS)
    assert handle.await_termination(SECONDS)
    assert (folders[0] / ".malflow" / "died").exists()
    rows = [row for path in sorted(folders[0].glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    texts = [gzip.decompress(path.read_bytes()) for path in sorted(folders[1].glob("*.gz"))]
    lines = [json.loads(it) for text in texts for it in text.splitlines()]
    for found in (rows, lines):
        assert_written_once(written(tmp_path / "all.txt", found), SIZE)
    assert not [*tmp_path.glob("*/.malflow/*/staged/*")]


def written(path: Path, rows: list[dict[str, int]]) -> Path:
    """Write rows as `flows.as_line` does."""
    path.write_text("".join(f"{row['key']} {row['number']} {row['total']}\n" for row in rows))
    return path
