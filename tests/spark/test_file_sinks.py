"""A file sink on Spark: exactly-once lines over rescales, a restart, and recovery from a damaged snapshot."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import RestartPolicy, SparkRuntime
from malflow.sinks import TextFileSink
from malflow.snapshot import FsspecBackend, snapshots
from tests.kit.waiting import wait_until
from tests.spark.clusters import SECONDS
from tests.spark.flows import WRITTEN, as_line, assert_written_once, backend_at, sums

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
