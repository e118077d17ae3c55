"""Parquet files that have other names when a run resumes, or while it reads, are read on and not again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from malflow import OperatorError, SingleThreadRuntime, StreamProvider
from malflow.connectors.parquet import ParquetSource
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from tests.kit.backends import in_memory
from tests.kit.waiting import wait_until


def write(path: Path, *numbers: int) -> None:
    """Write a file, as a whole, of a time of its own."""
    pq.write_table(pa.table({"n": numbers}), path.with_suffix(".part"), row_group_size=2)
    path.with_suffix(".part").rename(path)


def reading(
    source: ParquetSource[Any] | Any, backend: FsspecBackend
) -> tuple[SingleThreadRuntime, VecSink[Any, Any, Any]]:
    """Return a runtime that reads a source, and its output."""
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("rows", source).sink("out", out)

    return SingleThreadRuntime(build, backend), out


def read(source: Any, backend: FsspecBackend) -> list[int]:
    """Run a job over a source; return its records, sorted."""
    runtime, out = reading(source, backend)
    runtime.execute()
    return sorted(out.values)


@pytest.fixture
def source(tmp_path: Path) -> Any:
    write(tmp_path / "other.parquet", 100)
    return ParquetSource(tmp_path / "*.parquet", row="n")


def test_a_renamed_file_is_read_once(source: Any, tmp_path: Path) -> None:
    backend = in_memory()
    write(tmp_path / "a.parquet", 1, 2, 3)
    assert read(source, backend) == [1, 2, 3, 100]
    (tmp_path / "a.parquet").rename(tmp_path / "b.parquet")
    assert read(source, backend) == []
    (tmp_path / "b.parquet").rename(tmp_path / "c.parquet")
    write(tmp_path / "b.parquet", 4, 5)
    assert read(source, backend) == [4, 5], "a new file under an old name"
    assert read(source, backend) == []


def test_a_file_that_was_read_in_part_is_read_on(source: Any, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", *range(10))
    reader = source.build_part(str(tmp_path / "a.parquet"), None)
    reader.poll_batch(3)
    at = reader.snapshot()
    reader.suspend()
    (tmp_path / "a.parquet").rename(tmp_path / "b.parquet")
    old, new = str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    assert source.renamed_parts({old: at}, source.list_parts()) == {old: new}
    before = (*at[:2], at[2][:4])  # as older versions kept it
    assert source.renamed_parts({old: before}, source.list_parts()) == {old: new}
    rest, values = source.build_part(new, at), []
    while found := rest.poll_batch(100)[0]:
        values += found
    assert values == [*range(at[0] * 2 + at[1], 10)]


def test_another_file_of_equal_size_and_time_is_a_new_one(source: Any, tmp_path: Path) -> None:
    backend, old, new = in_memory(), tmp_path / "a.parquet", tmp_path / "b.parquet"
    write(old, 1, 2)
    read(source, backend)
    found = old.stat()
    old.unlink()
    write(new, 3, 4)
    os.utime(new, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert new.stat().st_size == found.st_size
    assert read(source, backend) == [3, 4]


def test_the_policy_may_refuse_renamed_files_or_read_them_again(tmp_path: Path) -> None:
    backend, again = in_memory(), in_memory()
    write(tmp_path / "a.parquet", 1)
    write(tmp_path / "b.parquet", 2)
    for it in (backend, again):
        read(ParquetSource(tmp_path / "*.parquet", row="n"), it)
    (tmp_path / "a.parquet").rename(tmp_path / "c.parquet")
    with pytest.raises(OperatorError, match=r"a.parquet' was renamed to '.*c.parquet'; pass on_renamed='continue'"):
        read(ParquetSource(tmp_path / "*.parquet", row="n", on_renamed="fail"), backend)
    assert read(ParquetSource(tmp_path / "*.parquet", row="n", on_renamed="restart"), again) == [1]


def test_two_copies_of_a_renamed_file_are_refused(source: Any, tmp_path: Path) -> None:
    backend = in_memory()
    write(tmp_path / "a.parquet", 1)
    read(source, backend)
    for name in ("b", "c"):
        (tmp_path / f"{name}.parquet").write_bytes((tmp_path / "a.parquet").read_bytes())
        time = (tmp_path / "a.parquet").stat().st_mtime_ns
        os.utime(tmp_path / f"{name}.parquet", ns=(time, time))
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(OperatorError, match=r"both '.*b.parquet' and '.*c.parquet' are what was read"):
        read(source, backend)


def test_a_running_job_sets_a_renamed_file_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend = in_memory()
    write(tmp_path / "a.parquet", 1, 2)
    runtime, out = reading(ParquetSource(tmp_path / "*.parquet", row="n", discover_every="10ms"), backend)
    handle = runtime.start()
    wait_until(lambda: len(out.values) == 2)
    (tmp_path / "a.parquet").rename(tmp_path / "b.parquet")
    wait_until(lambda: "counts as renamed" in caplog.text)
    write(tmp_path / "c.parquet", 3)
    wait_until(lambda: 3 in out.values)
    handle.stop()
    handle.await_termination()
    assert sorted(out.values) == [1, 2, 3]
    assert read(ParquetSource(tmp_path / "*.parquet", row="n"), backend) == []
