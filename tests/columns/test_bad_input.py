"""Bad input gives what records give: an error with operator, key, value and remedy, or a defined result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from malflow import OperatorError, SingleThreadRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.columns import Frame
from malflow.columns.answers import together
from malflow.connectors.parquet import ArrowSource, ParquetSource
from malflow.sinks import VecSink
from malflow.windows import tumbling
from tests.columns.drawn_flows import zoneless
from tests.columns.flows import values_of

Flow = Callable[[Any], Any]

NAN = float("nan")


def outcome(source: Any, build: Flow, *, by_records: bool, workers: int = 1) -> str:
    """Return all that comes out, or the text of the error."""
    sink: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        rows: Any = provider.new_stream().source("rows", source)
        build(rows.map("copied", dict) if by_records else rows).sink("out", sink)

    try:
        SingleThreadRuntime(build_dataflow, parallelism=workers).execute()
    except Exception as error:  # noqa: BLE001 - it is compared
        return zoneless(f"{type(error).__name__}: {error}")
    told = [zoneless(repr((msg.key, msg.value, msg.timestamp))) for msg in sink]
    return "; ".join(told if workers == 1 else sorted(told))


def same(source: Any, build: Flow, *, workers: int = 1) -> str:
    """Return what comes out by columns; check that it is the same by records."""
    found, expected = (outcome(source, build, by_records=it, workers=workers) for it in (False, True))
    assert found == expected
    return found


def running(aggregator: Any) -> Flow:
    return lambda rows: rows.key_distribute("by k", "k").aggregate("it", aggregator)


def windowed(aggregator: Any, size: Any = 2, bound: Any = 5, field: str | None = None) -> Flow:
    def build(rows: Any) -> Any:
        if field is None:
            timed = rows.generate_epochs("times", limit_out_of_orderness(bound)).on_time
        else:
            timed = rows.event_time("times", field, out_of_orderness=bound)
        return timed.key_distribute("by k", "k").window(tumbling(size)).aggregate("it", aggregator)

    return build


def hidden(*items: Any) -> pa.Array:
    """Return a dictionary with null entries and no null indices."""
    return pa.DictionaryArray.from_arrays(pa.array(range(len(items)), pa.int32()), pa.array(items))


COLUMNS: dict[str, pa.Array] = {
    "signs of zero": pa.array([0.0, -0.0, 0.0]),
    "signs of zero, the other way": pa.array([-0.0, 0.0, -0.0]),
    "NaN": pa.array([1.0, NAN, 0.5]),
    "NaN first": pa.array([NAN, 1.0, 0.5]),
    "sums beyond 2 ** 63": pa.array([2**62, 2**62 + 1, 2**62]),
    "means beyond 2 ** 53": pa.array([2**53 + 1, 2**53 + 3, 5]),
    "unsigned": pa.array([2**63, 2**64 - 1, 1], pa.uint64()),
    "small unsigned": pa.array([255, 255, 255], pa.uint8()),
    "decimals": pa.array([Decimal("1.10"), Decimal("2.25"), Decimal(3)]),
    "spans": pa.array([timedelta(1), timedelta(2), timedelta(0, 1)]),
    "structs": pa.array([{"a": 1}, {"a": 2}, {"a": 0}]),
    "lists": pa.array([[1], [2], [0]]),
    "maps": pa.array([[("a", 1)], [("b", 2)], []], pa.map_(pa.string(), pa.int64())),
    "flags": pa.array([True, False, True]),
    "no type": pa.nulls(3),
    "nulls": pa.array([1, None, 3]),
    "hidden nulls": hidden(1, None, 3),
    "days": pa.array([date(2020, 1, 1)] * 3),
    "times of day": pa.array([time(1)] * 3),
    "halves": pa.array([1.0, 2.0, 0.5], pa.float16()),
    "singles": pa.array([0.1, 0.2, 0.3], pa.float32()),
    "texts": pa.array(["a", "b", "c"]),
    "views": pa.array(["a", "b", "c"], pa.string_view()),
    "bytes": pa.array([b"a", b"b", b"c"]),
    "zones with summer time": pa.array([0, 1, 2], pa.timestamp("us", "Europe/Berlin")),
    "years beyond those of Python": pa.array([2**60, 1, 2], pa.timestamp("us")),
    "whole nanoseconds": pa.array([1000, 2000, 5000], pa.timestamp("ns")),
    "fractions of a microsecond": pa.array([1001, 2000, 5000], pa.timestamp("ns")),
    "spans in nanoseconds": pa.array([1000, 2000, 5000], pa.duration("ns")),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array([1, 2])),
}

AGGREGATORS: dict[str, Callable[..., Any]] = {
    "count": agg.count,
    "sum": agg.sum,
    "sum of ints": partial(agg.sum, of=int),
    "min": agg.min,
    "max": agg.max,
    "mean": agg.mean,
    "variance": agg.variance,
    "first": agg.first,
    "last": agg.last,
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_each_kind_are_aggregated_as_records(name: str) -> None:
    table = pa.table({"k": ["a"] * 3, "x": COLUMNS[name]})
    windows = [(windowed, AGGREGATORS[it]) for it in ("sum", "max", "last")]
    for flow, aggregator in [*zip(repeat(running), AGGREGATORS.values()), *windows]:
        found = same(ArrowSource(table), flow(aggregator("x")))
        assert "Arrow" not in found.replace("ArrowSource", "")
        assert "numpy" not in found


def test_floats_where_integers_are_said() -> None:
    for flow in (running, windowed):
        found = same(ArrowSource(pa.table({"k": ["a"], "x": [1.5]})), flow(agg.sum("x", of=int)))
        assert "operator 'it' failed at key 'a', value {'k': 'a', 'x': 1.5}" in found


KEYS: dict[str, tuple[pa.Array, str]] = {
    "null": (pa.array(["a", None]), "None cannot be used as a key"),
    "hidden null": (hidden("a", None), "None cannot be used as a key"),
    "NaN": (pa.array([1.0, NAN]), "nan cannot be used as a key"),
    "zeros": (pa.array([0.0, -0.0]), "(0.0, 1, "),
    "lists": (pa.array([[1], [2]]), "[1]"),
    "structs": (pa.array([{"a": 1}, {"a": 2}]), "{'a': 1}"),
    "decimals": (pa.array([Decimal("1.0"), Decimal("1.00")], pa.decimal128(4, 2)), "(Decimal('1.00'), 1, "),
    "unsigned": (pa.array([2**63, 2**64 - 1], pa.uint64()), f"({2**63}, 1, "),
    "moments in a zone": (pa.array([0, 1], pa.timestamp("us", "Europe/Berlin")), "Europe/Berlin"),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("workers", [1, 3])
def test_keys_are_those_of_records(name: str, workers: int) -> None:
    keys, words = KEYS[name]
    for flow in (running(agg.sum("x")), windowed(agg.sum("x"), field="x")):
        found = same(ArrowSource(pa.table({"k": keys, "x": [1, 2]})), flow, workers=workers)
    assert words.replace(", 1, ", ", ") in found.replace(", 1, ", ", ") or "WindowResult" in found


STAMPS: dict[str, tuple[pa.Array, Any, str]] = {
    "null": (pa.array([1, None]), 0, "None is not a timestamp"),
    "hidden null": (hidden(5, None), 0, "None is not a timestamp"),
    "dictionary": (hidden(5, 6), 0, "WindowResult"),
    "NaN": (pa.array([1.0, NAN]), 1.0, "nan is not a timestamp"),
    "texts": (pa.array(["b", "c"]), 0, "the timestamps are str"),
    "unsigned": (pa.array([2**63, 2**64 - 1], pa.uint64()), 0, "WindowResult"),
    "naive": (pa.array([1, 2], pa.timestamp("us")), timedelta(0), "WindowResult"),
    "summer time": (pa.array([1, 2], pa.timestamp("us", "Europe/Berlin")), timedelta(0), "Europe/Berlin"),
    "an offset": (pa.array([1, 2], pa.timestamp("us", "+01:00")), timedelta(0), "WindowResult"),
    "another name of UTC": (pa.array([1, 2], pa.timestamp("us", "Etc/UTC")), timedelta(0), "WindowResult"),
    "milliseconds": (pa.array([1, 2], pa.timestamp("ms", "UTC")), timedelta(0), "WindowResult"),
    "years": (pa.array([1, 2**60], pa.timestamp("us", "UTC")), timedelta(0), "that Python can't hold"),
    "nanoseconds": (pa.array([1001, 2], pa.timestamp("ns", "UTC")), timedelta(0), "fraction of a microsecond"),
    "spans": (pa.array([timedelta(1), timedelta(2)]), timedelta(0), "WindowResult"),
    "decimals": (pa.array([Decimal(1), Decimal(2)]), 0, "Decimal"),
    "flags": (pa.array([False, True]), 0, ""),
}


@pytest.mark.parametrize("name", STAMPS)
def test_timestamps_are_those_of_records(name: str) -> None:
    stamps, bound, words = STAMPS[name]
    size: Any = timedelta(seconds=1) if isinstance(bound, timedelta) else 2
    flow = windowed(agg.sum("x"), size, bound, "ts")
    found = same(ArrowSource(pa.table({"k": ["a", "a"], "x": [1, 2], "ts": stamps})), flow)
    assert words in found


def files(folder: Path, tables: Sequence[pa.Table]) -> ParquetSource:
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")
    return ParquetSource(f"{folder}/*.parquet", in_order=True)


FIRST = pa.table({"k": ["a", "b"], "x": [1, 2]})

LATER: dict[str, tuple[pa.Table, str]] = {
    "floats": (pa.table({"k": ["a", "b"], "x": [0.5, 0.25]}), ".5, "),
    "texts": (pa.table({"k": ["a"], "x": ["1"]}), "a field is text where a number is needed"),
    "no such column": (pa.table({"k": ["a"], "y": [1]}), "the value has no item 'x'; it has ['k', 'y']"),
    "only nulls": (pa.table({"k": ["a"], "x": pa.nulls(1)}), "a field is None, which cannot be aggregated"),
    "no such key": (pa.table({"kk": ["a"], "x": [1]}), "the value has no item 'k'; it has ['kk', 'x']"),
    "keys of another type": (pa.table({"k": [1], "x": [1]}), "(1, "),
    "keys in a dictionary": (pa.table({"k": pa.array(["c"]).dictionary_encode(), "x": [1]}), "('c', "),
    "more columns": (pa.table({"z": [1], "k": ["a"], "x": [1]}), "('a', "),
    "no rows": (FIRST.slice(0, 0), "('a', "),
    "no columns": (pa.table({}), "('a', "),
}


@pytest.mark.parametrize("name", LATER)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("flow", [running(agg.sum("x")), windowed(agg.sum("x"))], ids=["running", "windows"])
def test_later_files_of_other_columns(name: str, workers: int, flow: Flow, tmp_path: Path) -> None:
    later, words = LATER[name]
    assert words in same(files(tmp_path, [FIRST, later, FIRST]), flow, workers=workers)


def test_files_with_no_rows_at_all(tmp_path: Path) -> None:
    for tables in ([FIRST.slice(0, 0)], [pa.table({})], [pa.table({}), FIRST.slice(0, 0)]):
        assert same(files(tmp_path, tables), running(agg.sum("x"))) == ""


def test_times_with_and_without_a_zone_in_two_files(tmp_path: Path) -> None:
    tables = [
        pa.table({"k": ["a"], "x": [1], "ts": pa.array([1], kind)})
        for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us"))
    ]
    flow = windowed(agg.sum("x"), timedelta(seconds=1), timedelta(0), "ts")
    assert "operator 'times' failed" in same(files(tmp_path, tables), flow)


def unchanged(batch: Any) -> Any:
    return batch


def test_batches_without_rows() -> None:
    batch = FIRST.to_batches()[0]
    for batches in ([batch.slice(0, 0)], [batch.slice(0, 0), batch, batch.slice(0, 0), batch]):
        found = same(ArrowSource(batches), running(agg.sum("x")))
        assert values_of(batches, lambda rows: rows.map_batches("it", unchanged)) == [
            row for them in batches for row in them.to_pylist()
        ]
    assert found.count("'a'") == 2


def of_a_gigabyte() -> pa.Array:
    """Return a text of more than a gigabyte. It takes no memory until it is read."""
    size = 1_100_000_000
    offsets = pa.py_buffer(np.array([0, size], np.int32))
    return pa.StringArray.from_buffers(1, offsets, pa.py_buffer(np.zeros(size, np.uint8)))


def test_texts_that_one_batch_cannot_hold() -> None:
    """They are joined as rows, or refused where there must be columns."""
    batch = pa.record_batch({"text": of_a_gigabyte()})
    assert Frame(batch).join([Frame(batch), Frame(batch)], in_turn=False) is None
    with pytest.raises(ValueError, match="more than 2 GiB of texts in one column"):
        together([batch, batch])


def test_join_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(arrays: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    batches = [pa.record_batch({"text": ["a"]}), pa.record_batch({"text": ["b"]})]
    monkeypatch.setattr(pa, "concat_arrays", short)
    with pytest.raises(MemoryError, match="malloc"):
        Frame(batches[0]).join([*map(Frame, batches)], in_turn=False)


@pytest.mark.parametrize("debug", [False, True])
def test_every_answer_is_too_short(debug: bool) -> None:
    table = pa.table({"n": [*range(100)]})
    build: Flow = lambda rows: rows.map_batches("it", lambda batch: batch.slice(1), on_error="skip")  # noqa: E731
    assert values_of(table, build, debug=debug) == []


REQUIRED = pa.schema([pa.field("n", pa.int64(), nullable=False)])


@pytest.mark.parametrize("debug", [False, True])
def test_nulls_that_a_schema_excludes(debug: bool) -> None:
    table = pa.table({"n": [1, 2, None, 4]})
    for build in (
        lambda rows: rows.map_batches("it", unchanged, schema=REQUIRED),
        lambda rows: rows.to_columns("it", schema=REQUIRED),
        lambda rows: rows.map("copied", dict).to_columns("it", schema=REQUIRED),
    ):
        with pytest.raises(
            OperatorError, match=r"'it' failed at .*, value \{'n': None\}, timestamp 2: .*schema= says that"
        ):
            values_of(table, build, debug=debug)
    kept = values_of(
        table, lambda rows: rows.map_batches("it", unchanged, schema=REQUIRED, on_error="skip"), debug=debug
    )
    assert [row["n"] for row in kept] == [1, 2, 4]


def test_row_that_does_not_fit_a_schema_is_named() -> None:
    table = pa.table({"n": [1, 2, 300, 400]})
    with pytest.raises(OperatorError, match=r"value \{'n': 300\}, timestamp 2: column 'n' does not fit .* int8"):
        values_of(table, lambda rows: rows.to_columns("it", schema={"n": pa.int8()}))
