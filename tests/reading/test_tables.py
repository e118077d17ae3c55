"""`to_arrow` and `export_state`: states as rows of Arrow and Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from malflow.errors import GraphError, OperatorError, SnapshotError, StoreError
from malflow.reading import export_state, tables, to_arrow
from malflow.snapshot import read_state
from malflow.states.kinds import StateKind
from tests.golden.test_golden import FOLDER
from tests.golden.write import JOBS, backend_of
from tests.kit.faulty_s3 import FaultyS3
from tests.kit.jobs import StoreBackend
from tests.kit.memory_store import MemoryStore
from tests.kit.s3_servers import S3_SERVERS, s3_options
from tests.reading.keeping import Keeper

GOLDEN = backend_of(JOBS[0], FOLDER / "format-3")


@dataclass
class Total:
    units: int
    price: float | None


class Pair(NamedTuple):
    first: int
    second: str


def kept(states: dict[Any, Any], kind: StateKind = StateKind.STATEFUL_MAP) -> Any:
    """Keep states on three workers; return the backend."""
    job = Keeper(StoreBackend(MemoryStore()), 3, kind=kind)
    job.save(states)
    return job.backend


@pytest.mark.parametrize(
    ("states", "rows"),
    [
        ({1: 10, 2: 20}, [10, 20]),
        ({1: "a", 2: "b"}, ["a", "b"]),
        ({1: [1, 2], 2: []}, [[1, 2], []]),
        ({1: {"n": 1}, 2: {"n": 2, "m": "x"}}, [{"n": 1, "m": None}, {"n": 2, "m": "x"}]),
        ({1: Total(1, 2.5), 2: Total(2, None)}, [{"units": 1, "price": 2.5}, {"units": 2, "price": None}]),
        ({1: Pair(1, "a"), 2: Pair(2, "b")}, [{"first": 1, "second": "a"}, {"first": 2, "second": "b"}]),
        ({1: (1, "a"), 2: (2, "b")}, [{"_1": 1, "_2": "a"}, {"_1": 2, "_2": "b"}]),
        ({1: (1, 2), 2: (3,)}, [[1, 2], [3]]),
    ],
)
@pytest.mark.parametrize("at_once", [1, 100])
def test_states_become_columns(states: Any, rows: Any, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_AT_ONCE", at_once)
    table = to_arrow(kept(states), "sum")
    assert table.column_names == ["key", "state"]
    found = dict(zip(table["key"].to_pylist(), table["state"].to_pylist(), strict=True))
    assert found == dict(zip(states, rows, strict=True))


def test_rows_have_the_order_of_read_state_over_batches_and_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_AT_ONCE", 7)
    monkeypatch.setattr(tables, "_INFERRED", 11)
    backend = kept({key: str(key) for key in range(100)})
    rows = [{"key": key, "state": state} for key, state in read_state(backend, "sum")]
    assert to_arrow(backend, "sum").to_pylist() == rows
    assert [it.num_rows for it in to_arrow(backend, "sum").to_batches()] == [11, *[7] * 12, 5]


@pytest.mark.parametrize(
    ("operator", "columns"),
    [
        ("days", ["pane", "key", "state"]),
        ("distinct", ["pane", "key", "id", "state"]),
        ("woken/timers", ["key", "state"]),
        ("changes", ["key", "state"]),
    ],
)
def test_slots_have_a_column_for_each_part(operator: str, columns: list[str]) -> None:
    table = to_arrow(GOLDEN, operator)
    assert table.column_names == columns
    assert table.num_rows == len(list(read_state(GOLDEN, operator))) > 0


def test_a_row_is_what_the_function_returns() -> None:
    backend = kept({1: (1, "a"), 2: (2, "b"), 3: (3, "c")})
    table = to_arrow(backend, "sum", row=lambda key, it: {"id": key, "text": it[1]} if key != 2 else None)
    assert sorted(table.to_pylist(), key=str) == [{"id": 1, "text": "a"}, {"id": 3, "text": "c"}]
    with pytest.raises(OperatorError, match=r"operator 'sum' failed at key 1, value \(1, 'a'\).*test_tables.py"):
        to_arrow(backend, "sum", row=lambda key, it: {"text": it[2 if key == 1 else 1]})
    with pytest.raises(GraphError, match="row needs a function of a key and its state; got <function"):
        to_arrow(backend, "sum", row=lambda key: {"id": key})  # type: ignore[arg-type, misc] # the mistake
    with pytest.raises(SnapshotError, match=r"'sum' cannot store 1: a row is a dict.*or pass row=, which returns"):
        to_arrow(backend, "sum", row=lambda key, _: key)
    with pytest.raises(SnapshotError, match="no row was made of operator 'sum' in snapshot 2"):
        to_arrow(backend, "sum", row=lambda _key, _state: None)


def test_a_schema_is_kept_to() -> None:
    backend = kept({1: (1, 2), 2: (3, 4)})
    fields = pa.struct([("low", pa.int8()), ("high", pa.float64())])
    schema = pa.schema([("key", pa.int32()), ("state", fields)])
    table = to_arrow(backend, "sum", schema=schema)
    assert table.schema == schema
    assert sorted(it["state"]["high"] for it in table.to_pylist()) == [2.0, 4.0]
    wider = pa.schema([*schema, ("more", pa.int8())])
    with pytest.raises(GraphError, match="columns of operator 'sum' are key, state; the schema has key, state, more"):
        to_arrow(backend, "sum", schema=wider)
    with pytest.raises(GraphError, match=r"schema needs a pyarrow.Schema; got 'key'"):
        to_arrow(backend, "sum", schema="key")
    with pytest.raises(SnapshotError, match=r"the states of operator 'sum' cannot store .* it is not"):
        to_arrow(backend, "sum", schema=pa.schema([("key", pa.string()), ("state", fields)]))


@pytest.mark.parametrize("states", [{1: 1, 2: "b"}, {1: 1j, 2: 2j}, {1: 1 << 70, 2: 3}])
def test_states_without_a_type_are_named_with_the_cure(states: Any) -> None:
    with pytest.raises(SnapshotError, match=r"operator 'sum' cannot store .* in column 'state'.*or pass row="):
        to_arrow(kept(states), "sum")


def test_no_state_is_no_row(tmp_path: Path) -> None:
    backend = kept({})
    assert to_arrow(backend, "sum").to_pylist() == []
    assert export_state(backend, "sum", tmp_path / "none.parquet") == 0
    assert pq.read_table(tmp_path / "none.parquet").column_names == ["key", "state"]


def test_an_exported_file_has_the_rows_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_AT_ONCE", 7)
    monkeypatch.setattr(tables, "_INFERRED", 20)
    backend = kept({key: (key, str(key)) for key in range(100)})
    assert export_state(backend, "sum", tmp_path / "new" / "sums.parquet") == 100
    (path,) = (tmp_path / "new").iterdir()
    assert pq.read_table(path) == to_arrow(backend, "sum")
    assert pq.ParquetFile(path).num_row_groups == 5
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    with pytest.raises(GraphError, match=r"sums.parquet' exists; delete it, or choose another name"):
        export_state(backend, "sum", path)


def test_an_export_may_be_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    export_state(kept({1: 1}), "sum", "sums.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["sums.parquet"]


@pytest.mark.fault("K7")
def test_an_export_that_fails_leaves_no_file_and_can_be_repeated(tmp_path: Path) -> None:
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(tables, "_INFERRED", 2)
    order = [key for key, _ in read_state(kept(dict.fromkeys(range(9), 1)), "sum")]
    backend = kept({key: "text" if key == order[-1] else key for key in range(9)})
    for _ in range(2):
        with pytest.raises(SnapshotError, match="'sum' cannot store"):
            export_state(backend, "sum", tmp_path / "sums.parquet")
        assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    export_state(backend, "sum", tmp_path / "sums.parquet", row=lambda key, state: {"text": f"{key} {state}"})
    assert pq.read_table(tmp_path / "sums.parquet").num_rows == 9


@pytest.mark.parametrize("path", ["", "folder/", "s3://bucket", 7, None])
def test_a_path_names_a_file(path: Any) -> None:
    with pytest.raises(GraphError, match="export_state needs"):
        export_state(kept({1: 1}), "sum", path)


@pytest.fixture(params=S3_SERVERS)
def s3(request: pytest.FixtureRequest) -> Iterator[FaultyS3]:
    with FaultyS3(upstream=s3_options(request)) as server:
        yield server


@pytest.mark.slow
def test_states_are_exported_to_s3(s3: FaultyS3) -> None:
    backend, path = kept({key: key for key in range(100)}), f"s3://{s3.bucket}/exports/sums.parquet"
    assert export_state(backend, "sum", path, storage_options=s3.options) == 100
    with s3.filesystem().open(path) as file:
        assert pq.read_table(file) == to_arrow(backend, "sum")
    with pytest.raises(GraphError, match=r"sums.parquet' exists"):
        export_state(backend, "sum", path, storage_options=s3.options)


@pytest.mark.slow
def test_no_secret_is_shown_where_s3_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    options = {
        "key": "someone",
        "secret": "canary-secret",
        "client_kwargs": {"endpoint_url": "http://127.0.0.1:1"},
        "config_kwargs": {"retries": {"max_attempts": 0}},
    }
    with pytest.raises(StoreError, match=r"'s3://bucket/sums.parquet' can't be reached") as raised:
        export_state(kept({1: 1}), "sum", "s3://bucket/sums.parquet", storage_options=options)
    assert "canary" not in str(raised.value)
