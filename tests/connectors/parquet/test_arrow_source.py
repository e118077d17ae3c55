"""Tables, datasets and streams of record batches as a source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from malflow import SingleThreadRuntime
from malflow.connectors.parquet import ArrowSource
from malflow.connectors.parquet.arrow_source import ArrowSourceError
from malflow.errors import GraphError
from malflow.message import NoKey
from malflow.sinks import VecSink

TABLE = pa.table({"n": list(range(50)), "town": [f"town {n % 7}" for n in range(50)]})


def batches() -> Iterator[pa.RecordBatch]:
    yield from TABLE.to_batches(max_chunksize=7)


def read(source: ArrowSource, state: int | None = None, limit: int = 4) -> list[tuple[Any, Any]]:
    partition, found = source.build_part(NoKey, state), []
    while not partition.is_finished():
        found += zip(*partition.poll_batch(limit), strict=True)
    return found


@pytest.fixture
def dataset(tmp_path: Path) -> ds.Dataset:
    for name, start in (("a", 0), ("b", 20)):
        pq.write_table(TABLE.slice(start, 20 if name == "a" else 30), tmp_path / f"{name}.parquet")
    return ds.dataset(tmp_path)


def test_every_kind_of_data(dataset: ds.Dataset) -> None:
    expected = [(n, n) for n in range(50)]
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
    for data in (TABLE, TABLE.combine_chunks().to_batches()[0], dataset, reader, batches, list(batches()), batches()):
        assert read(ArrowSource(data, row="n")) == expected
    pandas = pytest.importorskip("pandas")
    assert read(ArrowSource(pandas.DataFrame({"n": range(50)}), row="n")) == expected


@pytest.mark.parametrize("taken", [0, 1, 7, 20, 23, 49, 50])
def test_resuming_after_some_rows(dataset: ds.Dataset, taken: int) -> None:
    for data in (TABLE, dataset, batches):
        source = ArrowSource(data, row="n")
        assert read(source, taken) == [(n, n) for n in range(taken, 50)]


def test_filter_and_columns(dataset: ds.Dataset) -> None:
    for data in (TABLE, dataset):
        source = ArrowSource(data, columns=["n"], filter=pc.field("town") == "town 3", row=tuple, timestamp=sum)
        assert read(source) == [((n,), n) for n in range(3, 50, 7)]


def test_data_shorter_than_before() -> None:
    with pytest.raises(ArrowSourceError, match=r"has fewer rows than the 51 read before"):
        read(ArrowSource(TABLE), 51)


def test_wrong_data() -> None:
    with pytest.raises(GraphError, match=r"needs a table, a dataset or record batches; got 3"):
        ArrowSource(3)
    with pytest.raises(GraphError, match=r"can filter tables and datasets only"):
        ArrowSource(batches, filter=pc.field("n") > 3)
    with pytest.raises(ArrowSourceError, match=r"needs record batches; got \{'n': 1\}"):
        read(ArrowSource([{"n": 1}]))
    with pytest.raises(ArrowSourceError, match=r"the data of ArrowSource has no column 'twon'"):
        read(ArrowSource(TABLE, columns=["twon"]))


def test_dataflow_over_a_table() -> None:
    found: VecSink[Any, Any, Any] = VecSink()
    SingleThreadRuntime(
        lambda provider: provider.new_stream().source("rows", ArrowSource(TABLE, row="n")).sink("out", found)
    ).execute()
    assert found.values == list(range(50))
