"""Times that Spark, Hive and Impala stored as INT96."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from malflow.connectors.parquet import ParquetSource
from malflow.sources import InputFileError

FAR = [
    datetime(9999, 12, 23, 23, 59, 59, 999999),
    datetime(1, 1, 1),
    datetime(1677, 9, 21),
    datetime(2262, 4, 12),
    None,
]
MICROS, NANOS = pa.timestamp("us"), pa.timestamp("ns")


def write(path: Path, kind: pa.DataType, values: list[Any]) -> str:
    pq.write_table(pa.table({"at": pa.array(values, kind)}), path, use_deprecated_int96_timestamps=True)
    return str(path)


def read(path: str, **options: Any) -> list[Any]:
    reader = ParquetSource(path, row="at", **options).build_part(path, None)
    values: list[Any] = []
    while not reader.is_finished():
        values += reader.poll_batch(100)[0]
    return values


@pytest.mark.parametrize("nanoseconds", ["fail", "truncate"])
def test_times_of_all_years_in_all_places(tmp_path: Path, nanoseconds: Any) -> None:
    structs = pa.struct([("deep", MICROS)])
    for kind, values in (
        (MICROS, FAR),
        (structs, [{"deep": it} for it in FAR]),
        (pa.list_(MICROS), [FAR, None, []]),
        (pa.list_(structs), [[{"deep": it} for it in FAR]]),
        (pa.map_(pa.string(), MICROS), [[("a", FAR[0])], None]),
    ):
        assert read(write(tmp_path / "far.parquet", kind, values), nanoseconds=nanoseconds) == values


@pytest.mark.parametrize("nested", [False, True])
def test_a_fraction_of_a_microsecond_is_refused_or_cut(tmp_path: Path, *, nested: bool) -> None:
    at = 1_714_564_800_000_000_123
    path = write(tmp_path / "fine.parquet", pa.list_(NANOS) if nested else NANOS, [[at] if nested else at])
    with pytest.raises(InputFileError, match=r"column 'at' with a fraction of a microsecond.*nanoseconds='truncate'"):
        read(path)
    cut = datetime(2024, 5, 1, 12)
    assert read(path, nanoseconds="truncate") == [[cut] if nested else cut]


def test_a_filter_on_such_a_column(tmp_path: Path) -> None:
    path = write(tmp_path / "far.parquet", MICROS, FAR)
    assert read(path, filter=[("at", ">", datetime(3000, 1, 1))]) == FAR[:1]
