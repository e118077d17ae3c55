"""Parquet on S3 as a source: ranges, changed objects, and no secrets in errors."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from malflow.connectors.parquet import ParquetSource
from malflow.sources import InputFileError
from tests.kit.faulty_s3 import FaultyS3
from tests.kit.s3_servers import S3_SERVERS, s3_options


@pytest.fixture(scope="module", params=S3_SERVERS)
def s3(request: pytest.FixtureRequest) -> Iterator[FaultyS3]:
    with FaultyS3(upstream=s3_options(request)) as server:
        yield server


def put(s3: FaultyS3, rows: int, name: str = "in/a.parquet") -> None:
    body = io.BytesIO()
    noise = pa.array([b"%099d" % (n * n) for n in range(rows)])
    pq.write_table(pa.table({"n": range(rows), "noise": noise}), body, row_group_size=1_000, compression="none")
    s3.filesystem().pipe_file(f"{s3.bucket}/{name}", body.getvalue())


def read(source: ParquetSource, part: str, state: Any = None) -> list[int]:
    partition, found = source.build_part(part, state), []
    while not partition.is_finished():
        found += partition.poll_batch(300)[0]
    return found


def drain(reader: Any) -> None:
    while not reader.is_finished():
        reader.poll_batch(300)


@pytest.mark.slow
def test_glob_resume_and_columns_that_are_not_fetched(s3: FaultyS3) -> None:
    put(s3, 20_000)
    source = ParquetSource(f"s3://{s3.bucket}/in/*.parquet", row="n", storage_options=s3.options)
    [part] = source.list_parts()
    assert part == f"s3://{s3.bucket}/in/a.parquet"
    first = source.build_part(part, None)
    for _ in range(10):
        first.poll_batch(300)
    state = first.snapshot()
    first.suspend()
    assert read(source, part, state) == list(range(state[0] * 1_000 + state[1], 20_000))


@pytest.mark.slow
def test_a_renamed_object_is_found_by_the_hash_of_its_content(s3: FaultyS3) -> None:
    put(s3, 100, "moved/a.parquet")
    put(s3, 200, "moved/b.parquet")
    folder = f"s3://{s3.bucket}/moved"
    source = ParquetSource(f"{folder}/*.parquet", row="n", storage_options=s3.options)
    first = source.build_part(f"{folder}/a.parquet", None)
    drain(first)
    s3.filesystem().mv(f"{s3.bucket}/moved/a.parquet", f"{s3.bucket}/moved/c.parquet")
    put(s3, 101, "moved/d.parquet")
    renamed = source.renamed_parts({f"{folder}/a.parquet": first.snapshot()}, source.list_parts())
    assert renamed == {f"{folder}/a.parquet": f"{folder}/c.parquet"}


def test_object_that_changed(s3: FaultyS3) -> None:
    put(s3, 5_000)
    part = f"s3://{s3.bucket}/in/a.parquet"
    source = ParquetSource(part, row="n", storage_options=s3.options)
    reader = source.build_part(part, None)
    reader.poll_batch(300)
    put(s3, 6_000)
    with pytest.raises(InputFileError, match=r"in/a.parquet"):
        drain(reader)
    with pytest.raises(InputFileError, match=r"was changed since it was read: it had \d+ bytes"):
        read(source, part, reader.snapshot())


@pytest.mark.parametrize("option", ["key", "secret"])
def test_no_secret_in_an_error(s3: FaultyS3, option: str) -> None:
    secret = s3.options[option]
    part = f"s3://{s3.bucket}/gone.parquet"
    source = ParquetSource(part, storage_options=s3.options)
    with pytest.raises(InputFileError, match=r"does not exist") as missing:
        read(source, part)
    s3.filesystem().pipe_file(f"{s3.bucket}/bad.parquet", secret.encode() * 10)
    with pytest.raises(InputFileError, match=r"cannot be read as Parquet") as bad:
        read(source, f"s3://{s3.bucket}/bad.parquet")
    for raised in (missing, bad):
        assert secret not in str(raised.value) + repr(source) + repr(source.build_part(part, None))
