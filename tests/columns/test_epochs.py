"""Epochs and late records of columns are those of the same records one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from malflow.columns import Column, Frame
from malflow.columns.column import Constant
from malflow.message import MAX, DataMessage
from malflow.operators.contract import OperatorContext
from malflow.operators.epochs.generator import GenerateEpochs
from malflow.operators.epochs.part_epochs import GeneratePartEpochs
from malflow.operators.epochs.rounding import limit_out_of_orderness
from malflow.records.batch import Batch
from malflow.records.columnar import rows_made

PARTS = ["a", "b", "c"]


class Parts:
    """Stands for a source: its parts, and which of them are unfinished."""

    def __init__(self, live: list[str], *, in_order: bool) -> None:
        self.live_parts: Any = tuple(live)
        self.polled_parts = self.live_parts
        self.in_order = in_order
        self.may_get_more = False

    def has_part(self, part: Any) -> bool:
        return part in PARTS


def moment(number: int, kind: str) -> Any:
    if kind == "whole":
        return number
    zone = UTC if kind == "zoned" else None
    return datetime(1970, 1, 1, tzinfo=zone) + timedelta(seconds=number)


def column(numbers: list[int], kind: str) -> Column:
    types = {"whole": pa.int64(), "zoned": pa.timestamp("us", "UTC"), "naive": pa.timestamp("us")}
    return Column(pa.array([moment(number, kind) for number in numbers], types[kind]))


def span(number: int, kind: str) -> Any:
    return number if kind == "whole" else timedelta(seconds=number)


def generator(kind: str, bound: int, every: int | None, parts: Parts | None, *, by_record: bool) -> GenerateEpochs:
    limit: Any = limit_out_of_orderness(span(bound, kind))
    if by_record:
        limit = _of_user(span(bound, kind))
    step = None if every is None else span(every, kind)
    if parts is None:
        return GenerateEpochs(OperatorContext("epochs"), limit, every=step)
    made = GeneratePartEpochs(OperatorContext("epochs"), limit, "source", every=step)
    made.source = parts  # type: ignore[assignment] # stands for it
    return made


def _of_user(bound: Any) -> Any:
    def limit(msg: DataMessage[Any, Any, Any], _previous: Any) -> Any:
        return msg.timestamp - bound

    return limit


def told(outputs: Any) -> list[Any]:
    """Return the records and epochs of each output, in order."""
    found: list[list[Any]] = [[], []]
    for batches in outputs:
        for port, batch in enumerate(batches):
            for run, epochs in batch.segments():
                found[port] += zip(run.key_column(), run.values, map(repr, run.timestamps), strict=True)
                found[port] += [repr(epoch) for epoch in epochs]
    return found


@settings(max_examples=60)
@given(
    st.sampled_from(["whole", "zoned", "naive"]),
    st.integers(0, 6),
    st.none() | st.integers(1, 7),
    st.booleans(),
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from(PARTS), st.integers(-5, 60)), max_size=30),
            st.lists(st.integers(0, 30), max_size=1),
            st.sets(st.sampled_from(PARTS)),
        ),
        max_size=6,
    ),
    st.booleans(),
)
def test_epochs_of_columns_are_those_of_records(
    kind: str, bound: int, every: int | None, by_part: bool, ticks: list[Any], in_order: bool
) -> None:
    parts = [Parts(PARTS, in_order=in_order) for _ in range(2)] if by_part else [None, None]
    columns, records = (generator(kind, bound, every, it, by_record=number == 1) for number, it in enumerate(parts))
    for rows, arrived, ended in ticks:
        numbers = [stamp for _, stamp in rows]
        frame = Frame(pa.record_batch({"n": pa.array(numbers, pa.int64())}))
        epochs = [(min(at, len(rows)), moment(at, kind)) for at in arrived]
        keys: Any = [part for part, _ in rows]
        stamps = column(numbers, kind)
        lists = Batch(keys, frame.apart(), stamps.tolist(), epochs).listed()
        keyed: Any = Constant(keys[0], len(keys)) if len(set(keys)) == 1 else Column(pa.array(keys, pa.string()))
        before = rows_made()
        answers = []
        for one, batch in ((columns, Batch(keyed, frame, stamps, epochs)), (records, lists)):
            answers.append([list(answer) for answer in one.run([[batch]])])
            if one is columns:
                assert rows_made() == before
        assert told(answers[0]) == told(answers[1])
        assert (columns.epoch, columns.take_counts()) == (records.epoch, records.take_counts())
        assert repr(columns.take_lateness()) == repr(records.take_lateness())
        for it in parts:
            if it is not None:
                it.live_parts = tuple(part for part in it.live_parts if part not in ended)
                it.polled_parts = it.live_parts
        for one in (columns, records):
            one.sync_state()
        shown = [{key: repr(it) for key, it in one.state.items() if key != "answered"} for one in (columns, records)]
        assert _issued(shown[0]) == _issued(shown[1])


def _issued(state: dict[Any, str]) -> dict[Any, str]:
    """Return the state without the answers of a generator before rounding, which one of a known kind does not need."""
    return {key: it for key, it in state.items() if not (isinstance(key, tuple) and key[0] == "answered")}


def test_records_after_the_end_are_late() -> None:
    operator = generator("whole", 1, None, None, by_record=False)
    frame = Frame(pa.record_batch({"n": list(range(20))}))
    ((_, late),) = operator.run([[Batch(None, frame, Column(pa.array(range(20))), [(10, MAX)])]])
    assert list(late.timestamps) == list(range(10, 20))


@pytest.mark.parametrize(
    ("stamps", "bound"),
    [
        (pa.array([2**62, 2**62 + 1] * 9), 0),
        (pa.array([1.5, 2.5] * 9), 0),
        (pa.array([1, 2] * 9), 0.5),
        (pa.array([1, 2] * 9, pa.uint8()), 3),
        (pa.array([-62135596800000000, 0] * 9).cast(pa.timestamp("us")), timedelta(1)),
    ],
)
def test_timestamps_at_the_edge(stamps: pa.Array, bound: Any) -> None:
    frame = Frame(pa.record_batch({"n": list(range(len(stamps)))}))
    answers = []
    for timestamps in (Column(stamps), stamps.to_pylist()):
        operator = GenerateEpochs(OperatorContext("epochs"), limit_out_of_orderness(bound))
        try:
            answers.append(repr(told(operator.run([[Batch(None, list(frame.apart()), timestamps)]]))))
        except Exception as error:  # noqa: BLE001 - both are to fail alike
            answers.append(str(error))
    assert answers[0] == answers[1]
