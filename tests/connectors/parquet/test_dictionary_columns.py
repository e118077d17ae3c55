"""Text columns that are read through their dictionaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.columns.arrays import UnreadableItem, to_python
from malflow.connectors.parquet import ArrowSource, ParquetSource

FEW = [*(f"town {number}" for number in range(9)), "", "é😀"]


def read(source: Any, part: Any, limit: int = 1_000) -> list[Any]:
    reader, values = source.build_part(part, None), []
    while not reader.is_finished():
        values.extend(reader.poll_batch(limit)[0])
    return values


def write(path: Path, column: Any, **options: Any) -> str:
    pq.write_table(pa.table({"text": column, "n": list(range(len(column)))}), path, **options)
    return str(path)


@given(
    picks=st.lists(st.integers(0, 2**16), min_size=1, max_size=50),
    kind=st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int16(), pa.string())]),
    distinct=st.sampled_from([1, 5, 11, 60]),
    nulls=st.booleans(),
    group=st.sampled_from([7, 100, 1_000]),
    limit=st.sampled_from([3, 64, 1_000]),
)
@pytest.mark.slow
def test_texts_are_those_of_the_table(
    tmp_path_factory: Any, picks: list[int], kind: Any, distinct: int, nulls: bool, group: int, limit: int
) -> None:
    texts = [FEW[pick % distinct] if pick % distinct < len(FEW) else str(pick) for pick in picks * 20]
    column = pa.array([None if nulls and len(text) % 3 == 0 else text for text in texts], kind)
    path = write(tmp_path_factory.getbasetemp() / "t.parquet", column, row_group_size=group)
    assert read(ParquetSource(path, row="text"), path, limit) == column.to_pylist()
    assert read(ParquetSource(path, filter=[("n", ">=", 5)], row="text"), path, limit) == column.to_pylist()[5:]


def test_dictionary_that_is_given_up_within_a_row_group(tmp_path: Path) -> None:
    texts = [str(number % 100 if number < 30_000 else number) for number in range(36_000)]
    path = write(tmp_path / "t.parquet", texts, dictionary_pagesize_limit=2_000, write_batch_size=512)
    assert read(ParquetSource(path, row="text"), path) == texts


def test_texts_in_a_filter(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", ["Ulm", "Bonn", None, "Ulm"] * 1_000)
    assert read(ParquetSource(path, filter=[("text", "==", "Ulm")], row="text"), path) == ["Ulm"] * 2_000


def test_equal_texts_are_one_object(tmp_path: Path) -> None:
    column = pa.array([f"town {number % 9}" for number in range(20_000)])
    path = write(tmp_path / "t.parquet", column)
    from_file = read(ParquetSource(path, row="text"), path)
    from_table = read(ArrowSource(pa.table({"text": column.dictionary_encode()}), row="text"), None)
    assert from_file == from_table == column.to_pylist()
    assert len(set(map(id, from_file))) == 9
    assert len(set(map(id, from_table))) < 100


def test_texts_of_a_remote_file(tmp_path: Path) -> None:
    texts = [f"town {number % 9}" for number in range(1_000)]
    path = write(tmp_path / "t.parquet", texts, row_group_size=300)
    memory = fsspec.filesystem("memory")
    memory.pipe("/texts/t.parquet", Path(path).read_bytes())
    [part] = ParquetSource("memory://texts/t.parquet").list_parts()
    values = read(ParquetSource("memory://texts/t.parquet", row="text"), part, 70)
    memory.rm("/texts", recursive=True)
    assert values == texts
    assert len(set(map(id, values))) == 9


def test_nested_texts_beside_one_with_the_same_path(tmp_path: Path) -> None:
    table = pa.table({"a": [{"b": "x"}, None] * 500, "a.b": ["q", "r"] * 500, "list": [["x"], []] * 500})
    pq.write_table(table, tmp_path / "t.parquet")
    path = str(tmp_path / "t.parquet")
    assert read(ParquetSource(path), path) == table.to_pylist()


def test_lists_in_a_dictionary_are_not_shared() -> None:
    lists = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array([[1], [2]]))
    first, second = read(ArrowSource(pa.table({"list": lists}), row="list"), None)
    assert first == second == [1]
    assert first is not second


def test_text_that_is_not_valid() -> None:
    bad = _unchecked([b"Ulm", b"\xff"])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0, 1], pa.int8()), bad)
    assert to_python(column.slice(0, 2)) == ["Ulm", "Ulm"]
    with pytest.raises(UnreadableItem, match="utf-8"):
        to_python(column)


def _unchecked(texts: list[bytes]) -> pa.Array:
    binary = pa.array(texts)
    return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())
