"""Columns that senders add up before they send them: nobody can see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import StreamProvider, agg
from malflow.columns import Column, Frame
from malflow.connectors.parquet import ParquetSource
from malflow.engine.plan import Program
from malflow.errors import OperatorError
from malflow.message import MAX
from malflow.operators.contract import OperatorContext
from malflow.operators.routing import Merge
from malflow.operators.windows.local_aggregate import LocalAggregate, Worth
from malflow.operators.windows.sliding import SlidingAggregate
from malflow.operators.windows.time_windows import WindowAggregate
from malflow.records.batch import Batch
from malflow.records.columnar import rows_made
from malflow.runtime.transport.chunks import ChunkBuffer
from malflow.sinks import VecSink
from malflow.windows import TimeWindows, sliding, tumbling
from tests.columns.aggregates import as_rows, state_bits
from tests.columns.aggregates import run as outputs_of
from tests.kit.driving import compiled
from tests.windows.test_local_aggregation import Wavering, rows_sent, without

_EXACT: Sequence[Callable[[str], Any]] = (
    lambda _: agg.count(),
    agg.count,
    lambda field: agg.sum(field, of=int),
    lambda field: agg.mean(field, of=int),
    agg.min,
    agg.max,
    agg.first,
    agg.last,
    lambda field: agg.into(dict, low=agg.min(field), total=agg.sum(field, of=int)),
)

_KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "ints": (pa.int64(), [2, 3, -4, 2**40]),
    "small": (pa.int8(), [2, 7, -128]),
    "huge": (pa.int64(), [2**62, 2**63 - 1, -(2**63), 2]),
    "floats": (pa.float64(), [1.5, -2.5, 1e300]),
    "zeros": (pa.float64(), [0.0, -0.0, 1.5]),
    "odd": (pa.float64(), [nan, inf, -inf, 0.5]),
    "unsigned": (pa.uint64(), [2**63, 2**64 - 1, 2]),
    "exact": (pa.decimal128(8, 2), [Decimal("0.25"), Decimal("-3.75")]),
    "nulls": (pa.int64(), [None, 2]),
    "flags": (pa.bool_(), [True, False]),
    "texts": (pa.string(), ["a", "b"]),
}
"""Columns of which no two have items that are equal but of other types: the order between senders is not specified."""

_KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "encoded": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", ""]),
    "text": (pa.string(), ["a", "b", ""]),
    "int": (pa.int64(), [7, -1]),
    "float": (pa.float64(), [0.0, 2.5]),
    "null": (pa.string(), ["a", None]),
}

_TWO = OperatorContext("windows", workers=(0, 1), tracked=True)
_BOUND = 4
_START = datetime(2026, 3, 1)


class Always(Worth):
    """Always worth while."""

    def note(self, records: int, accumulators: int) -> None:
        """Ignore counts."""


Ticks = list[list[list[Batch]]]
"""The batches of each tick and sender."""


@st.composite
def ticks(draw: Any, *, hostile: bool = True) -> Ticks:
    """Draw the batches of two senders: columns, and some rows among them."""
    usual = draw(st.sampled_from(["ints", "ints", "small", "floats"]))
    timed, key = draw(st.sampled_from(["int", "utc", "naive"])), draw(st.sampled_from(["encoded", "text", "int"]))
    is_mixed = hostile and draw(st.booleans())
    clocks = [draw(st.integers(0, 5)), draw(st.integers(0, 5))]
    begin = [[Batch(None, (), (), [(0, _moment(clock - 2 * _BOUND, timed))])] for clock in clocks]
    found: Ticks = [begin] if draw(st.integers(0, 3)) else []
    for _ in range(draw(st.integers(1, 3))):
        found.append([[], []])
        for sender, batches in enumerate(found[-1]):
            for _ in range(draw(st.integers(0, 3))):
                is_odd = is_mixed and draw(st.integers(0, 3)) == 0
                others = [it for it in sorted(_KINDS) if sender == 0 or it != "zeros"]
                kind = draw(st.sampled_from(others)) if is_odd else usual
                keyed = draw(st.sampled_from(sorted(_KEYS))) if is_odd else key
                clocks[sender], batch = _drawn(draw, clocks[sender], kind, keyed, timed, is_careless=is_odd)
                batches.append(as_rows(batch) if is_mixed and draw(st.integers(0, 4)) == 0 else batch)
    return found


def _drawn(draw: Any, clock: int, kind: str, key: str, timed: str, *, is_careless: bool) -> tuple[int, Batch]:
    """Draw a batch that begins at a time; return the time after it, too."""
    count = draw(st.integers(0, 20))
    (kind_of_x, items), (kind_of_key, keys) = _KINDS[kind], _KEYS[key]
    stamps, epochs = [], []
    reached = clock - _BOUND
    for at in range(count + 1):
        if draw(st.integers(0, 7)) == 0 and clock - _BOUND > reached:
            reached = clock - _BOUND
            epochs.append((at, _moment(reached, timed)))
        clock += draw(st.sampled_from([0, 0, 1, 3]))
        back = 9 if is_careless and draw(st.integers(0, 20)) == 0 else draw(st.integers(0, _BOUND - 1))
        stamps.append(_moment(clock - back, timed))
    kind_of_time = pa.int64() if timed == "int" else pa.timestamp("us", "UTC" if timed == "utc" else None)
    x = pa.array([draw(st.sampled_from(items)) for _ in range(count)], kind_of_x)
    column = pa.array([draw(st.sampled_from(keys)) for _ in range(count)], kind_of_key)
    times = Column(pa.array(stamps[:count], kind_of_time))
    return clock, Batch(Column(column), Frame(pa.record_batch({"x": x})), times, epochs)


def _moment(clock: int, timed: str) -> Any:
    if timed == "int":
        return clock
    moment = _START + timedelta(seconds=clock)
    return pa.scalar(moment, pa.timestamp("us", "UTC")).as_py() if timed == "utc" else moment


def _windows(size: int, step: int | None, timed: bool) -> TimeWindows:
    of: Any = timedelta(seconds=1) if timed else 1
    return tumbling(size * of) if step is None else sliding(2 * size * of, 2 * step * of)


def _copied(batch: Batch) -> Batch:
    """Return the same batch for another run: rows that are made of it stay there."""
    return replace(batch, values=batch.values[:])


def _seen(script: Ticks, windows: TimeWindows, chosen: Sequence[Any], *worths: Any, packs: bool = False) -> Any:
    """Return all that can be seen of windows that get records of two senders, and how many records were not sent."""
    kind = WindowAggregate if windows.is_plain else SlidingAggregate
    receiver, merge = kind(_TWO, windows, chosen, merges=True), Merge(_TWO, 2, in_turn=False)
    made = [worths[sender % len(worths)] if worths else None for sender in range(2)]
    senders = [it and LocalAggregate("windows", windows, chosen, worth=it()) for it in made]
    found: list[Any] = []
    saved = 0
    ends: Ticks = [[[Batch(None, (), (), [(0, MAX)])], [Batch(None, (), (), [(0, MAX)])]]]
    for tick in [*script, *ends]:
        edges: list[list[Batch]] = []
        for local, batches in zip(senders, tick, strict=True):
            out = whole = list(map(_copied, batches))
            if local is not None:
                try:
                    out = [it for batch in whole for it in local.take(batch)]
                except OperatorError as error:
                    return [*found, str(error)], saved
                out += local.end_tick()
            less = sum(map(len, batches)) - sum(map(len, out))
            assert less == (0 if local is None else local.take_saved())
            saved += less
            edges.append(_sent(out) if packs else out)
        given: list[Any] = []
        for (batch,) in merge.run(edges):
            outputs = outputs_of(receiver, batch)
            if isinstance(outputs, str):
                return [*found, outputs], saved
            given += _in_order(*outputs[0])
        found.append((given, state_bits(receiver)[0]))
    return found, saved


def _in_order(keys: Any, values: Any, timestamps: Any, epochs: Any) -> list[Any]:
    """Return results and the epochs between them as one list, however they are divided into batches."""
    items: list[Any] = list(zip(keys, values, timestamps, strict=True))
    for at, epoch in reversed(epochs):
        items.insert(at, epoch)
    return items


def _sent(batches: Sequence[Batch]) -> list[Batch]:
    buffer = ChunkBuffer("windows")
    buffer.add(batches)
    return [chunk.batch() for chunk in buffer.take()]


def _rows(script: Ticks) -> Ticks:
    return [[list(map(as_rows, batches)) for batches in tick] for tick in script]


@st.composite
def aggregators(draw: Any) -> list[Any]:
    """Draw some aggregators."""
    made: list[Callable[[str], Any]] = draw(st.lists(st.sampled_from(_EXACT), min_size=1, max_size=3))
    return [make("x") for make in made]


@given(ticks(), aggregators(), st.integers(1, 6), st.none() | st.integers(1, 4), st.data())
def test_columns_added_up_before_give_what_they_give(
    script: Ticks, chosen: Any, size: int, step: int | None, data: Any
) -> None:
    stamps = [it for tick in script for edge in tick for batch in edge for it in batch.timestamps]
    windows = _windows(size, step, timed=bool(stamps) and isinstance(stamps[0], datetime))
    off, _ = _seen(script, windows, chosen)
    lists, _ = _seen(_rows(script), windows, chosen, Always)
    is_given = data.draw(st.lists(st.booleans(), max_size=6))
    for worth in (Always, lambda: Wavering(is_given)):
        arrays, _ = _seen(script, windows, chosen, worth, packs=data.draw(st.booleans()))
        assert _told(arrays) == _told(off)
    assert _told(lists) == _told(off)


def _told(found: list[Any]) -> Any:
    """Return what was found; of a run that failed, only that, since another record may show it."""
    return isinstance(found[-1], str) or found


@pytest.mark.parametrize("bad", [pa.array([2, None]), pa.array([2, 0.5]), pa.array(["a", "b"])], ids=str)
def test_errors_of_columns_are_those_of_the_record(bad: Any) -> None:
    good = _of_one_key("columns", [1, 2, 3], [5, 6, 15], (1, 2))
    misfit = good.part(0, 2).with_values(Frame(pa.record_batch({"x": bad})))
    script = [[BEGIN, BEGIN], [[good, misfit, good], [good]]]
    off, _ = _seen(script, tumbling(10), [agg.sum("x", of=int)])
    arrays, saved = _seen(script, tumbling(10), [agg.sum("x", of=int)], Always)
    assert saved > 0
    assert arrays == off
    assert isinstance(off[-1], str)


TOWNS = ["Ulm", "Bonn", "Kiel", "Jena", "Trier"]


def _table(records: int) -> pa.Table:
    towns = pa.array([TOWNS[number % 5] for number in range(records)]).dictionary_encode()
    numbers = list(range(records))
    return pa.table({"town": towns, "ts": numbers, "n": numbers, "x": [number / 8 for number in numbers]})


def _program(folder: Path, *aggregators: Any) -> tuple[Program, VecSink[Any, Any, Any]]:
    """Return windows of files of which each has one in three records."""
    whole, sink = _table(6_000), VecSink[Any, Any, Any]()
    for part in range(3):
        pq.write_table(whole.take(list(range(part, 6_000, 3))), folder / f"{part}.parquet", row_group_size=500)

    def build(provider: StreamProvider) -> None:
        rows = provider.new_stream().source("rows", ParquetSource(f"{folder}/*.parquet"))
        timed = rows.event_time("times", "ts", out_of_orderness=5, every=10)
        keyed = timed.key_distribute("town", "town").window(tumbling(500))
        keyed.aggregate("bars", *aggregators).to_columns("columns", key="town").sink("sink", sink)

    return compiled(build), sink


@pytest.mark.parametrize("parallelism", [2, 3])
def test_accumulators_stay_columns(parallelism: int, tmp_path: Path) -> None:
    chosen = agg.count(), agg.sum("n", of=int), agg.min("x"), agg.max("n")
    sent, found = [], []
    for change in (without, lambda it: it):
        before = rows_made()
        program, sink = _program(tmp_path, *chosen)
        sent.append(sum(rows_sent(change(program), parallelism, limit=64)))
        assert rows_made() == before
        found.append(sorted((row for frame in sink.frames() for row in list(frame)), key=repr))
    assert found[0] == found[1]
    assert sent[1] < sent[0] / 4, "the first tick has no epoch before it"


def _of_one_key(form: str, numbers: Sequence[Any], stamps: Sequence[int], *epochs: tuple[int, int]) -> Batch:
    values = Frame(pa.record_batch({"x": pa.array(numbers)}))
    batch = Batch(Column(pa.array(["a"] * len(numbers))), values, Column(pa.array(stamps)), epochs)
    return batch if form == "columns" else as_rows(batch)


BEGIN = [Batch(None, (), (), [(0, 0)])]


def test_the_last_of_equal_times_is_that_of_the_highest_epoch() -> None:
    first = _of_one_key("columns", [1] * 8 + [2] * 8, [5] * 16, (8, 2))
    second = _of_one_key("columns", [9] * 16, [5] * 16, (0, 1), (16, 3))
    script = [[BEGIN, BEGIN], [[first], [second]]]
    off, _ = _seen(script, tumbling(10), [agg.last("x")])
    arrays, saved = _seen(script, tumbling(10), [agg.last("x")], Always)
    assert arrays == off
    assert saved == 32 - 3
    ((_, result, _),) = [it for it in off[-1][0] if not isinstance(it, str)]
    assert result[1][2] == ("int", "2")


def test_records_after_nan_are_not_lost() -> None:
    script = [
        [BEGIN, BEGIN],
        [[_of_one_key("columns", [5.0], [5])], []],
        [[_of_one_key("columns", [nan, 7.0], [5, 5])], []],
    ]
    found, _ = _seen(script, tumbling(10), [agg.max("x")], Always)
    ((_, result, _),) = [it for it in found[-1][0] if not isinstance(it, str)]
    assert result[1][2] == ("float", "7.0")


def test_accumulators_of_columns_end_where_records_are_sent_as_they_are() -> None:
    local = LocalAggregate("windows", tumbling(100), [agg.count(), agg.max("x")], worth=Always())
    local.take(BEGIN[0])
    forms: list[tuple[str, list[Any]]] = [
        ("columns", [1, 2]),
        ("columns", [3]),
        ("rows", [nan, 4.0]),
        ("rows", [5, 6]),
        ("columns", [7, 8]),
    ]
    for at, (form, numbers) in enumerate(forms):
        epochs = [(0, at + 1)] if form == "columns" else []
        assert local.take(_of_one_key(form, numbers, [5] * len(numbers), *epochs)) == ()
    sent = [(it.has_arrays, list(it.values), list(it.epochs)) for it in local.end_tick()]
    assert repr(sent) == repr(
        [
            (False, [], [(0, 0)]),
            (True, [([3, 3],)], [(0, 1), (1, 2)]),
            (False, [{"x": nan}, {"x": 4.0}], []),
            (False, [([2, 6],)], []),
            (True, [([2, 8],)], [(0, 5)]),
        ]
    )


@pytest.mark.parametrize("packs", [True, False])
def test_records_and_accumulators_of_one_tick_stay_columns(packs: bool) -> None:
    odd = _of_one_key("columns", [0.5, -0.0, 1.5], [5, 6, 7], (3, 4))
    even = _of_one_key("columns", [0.5, 0.25, 1.5], [5, 6, 7], (1, 3))
    for first in ([even, odd, even], [even]):
        script = [[BEGIN, BEGIN], [first, [even, odd]]]
        off, _ = _seen(script, tumbling(10), [agg.max("x"), agg.count()])
        before = rows_made()
        arrays, saved = _seen(script, tumbling(10), [agg.max("x"), agg.count()], Always, None, packs=packs)
        assert arrays == off
        assert saved == 2 * (len(first) + 1) // 2
        assert rows_made() == before + 1, "of the result"


@pytest.mark.parametrize(("keys", "pays"), [(2_000, True), (2_002, False), (4_001, False)])
def test_columns_are_added_up_where_six_become_one(keys: int, pays: bool) -> None:
    local = LocalAggregate("windows", tumbling(100), [agg.count()])
    column = Column(pa.array([number % keys for number in range(12_000)]))
    frame = Frame(pa.record_batch({"n": column.array}))
    sent = []
    for _ in range(2):
        tick = [*local.take(Batch(None, (), (), [(0, 1)])), *local.take(Batch(column, frame, [5] * 12_000))]
        sent.append(sum(map(len, [*tick, *local.end_tick()])))
    assert sent == [keys, keys if pays else 12_000]
