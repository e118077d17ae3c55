"""Rows at which functions of batches, keys and timestamps fail have the fates that records have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import OnError, OperatorError, SingleThreadRuntime
from malflow.cli.output.output import Output
from malflow.cli.running.tapping import ReplayingListener
from malflow.columns import Column, Frame
from malflow.connectors.parquet import ArrowSource
from malflow.engine.dead_letters import replay
from malflow.failures import Replay, Retry
from malflow.operators.batches import FilterBatches, MapBatches
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.epochs.timestamps import AssignTimestampsByField
from malflow.operators.failures.dead_letters import Letters
from malflow.operators.failures.halves import by_halves
from malflow.operators.failures.surviving import guarded
from malflow.operators.keying import KeyByField
from malflow.operators.stateless import Filter, Map
from malflow.partitioners import rendezvous_select
from malflow.records.batch import Batch
from malflow.records.columnar import rows_made
from malflow.sinks import VecSink
from malflow.snapshot import dead_letters
from tests.columns.flows import cut, records_of, values_of
from tests.kit.backends import in_memory

BAD: set[int] = set()
"""The numbers at which functions fail."""


def check(number: int | None) -> None:
    if number in BAD:
        raise ValueError("bad")


def double(row: Any) -> Any:
    check(row["n"])
    return {"n": row["n"], "twice": None if row["n"] is None else row["n"] * 2}


def double_all(batch: Any) -> Any:
    for number in batch["n"].to_pylist():
        check(number)
    return pa.record_batch({"n": batch["n"], "twice": pc.multiply(batch["n"], 2)})


def is_small(row: Any) -> Any:
    check(row["n"])
    return row["n"] is not None and row["n"] < 7


def are_small(batch: Any) -> Any:
    return pc.less(double_all(batch)["n"], 7)


OPERATORS: dict[str, tuple[Any, Any]] = {
    "map": (partial(Map, callback=double), partial(MapBatches, callback=double_all)),
    "filter": (partial(Filter, callback=is_small), partial(FilterBatches, callback=are_small)),
    "key": (partial(KeyByField, field="n"),) * 2,
    "float key": (partial(KeyByField, field="x"),) * 2,
    "timestamp": (partial(AssignTimestampsByField, field="n"),) * 2,
    "float timestamp": (partial(AssignTimestampsByField, field="x"),) * 2,
}
"""The operator of records, and that of columns."""

ROW = st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9), st.sampled_from([0.0, 1.5, float("nan"), None]))


class One:
    """An operator with a guard, alone, on records or on columns.

    Args:
        logic: makes the operator.
        policy: its policy.
        as_columns: whether its batches are columns.
        debug: whether it checks laws.
    """

    def __init__(self, logic: Any, policy: OnError, *, as_columns: bool, debug: bool = False) -> None:
        context = OperatorContext("it", tracked=True, debug=debug)
        self._letters = Letters(context, rendezvous_select)
        self.operator: Operator = guarded(logic, context, policy, self._letters)
        self._as_columns = as_columns
        self.out: list[Any] = []

    def process(self, rows: Sequence[Any], first: int) -> None:
        """Process a batch of rows, with timestamps from a number on, and an epoch in its middle and at its end."""
        keys = [key for key, _, _ in rows]
        columns = {"n": [n for _, n, _ in rows], "x": [x for _, _, x in rows]}
        stamps: Any = range(first, first + len(rows))
        epochs = [(len(rows) // 2, first), (len(rows), first + 1)]
        if self._as_columns:
            batch = pa.record_batch(
                {"n": pa.array(columns["n"], pa.int64()), "x": pa.array(columns["x"], pa.float64())}
            )
            self.emit(
                self.operator.process(Batch(Column(pa.array(keys)), Frame(batch), Column(pa.array(stamps)), epochs))
            )
        else:
            values = [{"n": n, "x": x} for _, n, x in rows]
            self.emit(self.operator.process(Batch(keys, values, stamps, epochs)))

    def replay(self, ids: Any = None) -> Any:
        """Replay letters; return how many of them."""
        return replay(Replay("it", ids), self.operator, self._letters, None, self.emit)

    def emit(self, batches: Sequence[Batch]) -> None:
        """Note the output."""
        for batch in batches:
            self.out += [
                (key, {name: row[name] for name in sorted(row)}, stamp)
                for key, row, stamp in zip(batch.key_column(), batch.values, batch.timestamps, strict=True)
            ]
            self.out += [("epochs", [(int(at), it) for at, it in batch.epochs])] if batch.epochs else []

    @property
    def letters(self) -> list[Any]:
        """What is known of the letters."""
        return [
            (it.id, it.key, it.value, it.timestamp, it.error, it.message, it.attempts, it.is_parked)
            for _, it in self._letters.chosen(None)
        ]


POLICIES = st.sampled_from(["skip", "dead_letter", "park", "by function"])


def policy_of(name: str) -> OnError:
    """Return a policy; the function parks some, skips some, and lets the others become letters."""
    fates: Any = ["park", "skip", "dead_letter"]
    if name == "by function":
        return OnError(lambda failure: fates[failure.timestamp % 3])
    return OnError(name)  # type: ignore[arg-type] # of the names above


@pytest.mark.parametrize("name", OPERATORS)
@given(
    batches=st.lists(st.lists(ROW, min_size=1, max_size=20), min_size=1, max_size=3),
    bad=st.sets(st.integers(0, 9)),
    mended=st.sets(st.integers(0, 9)),
    policy=POLICIES,
    debug=st.booleans(),
)
def test_rows_have_the_fates_of_records(
    name: str, batches: list[Any], bad: set[int], mended: set[int], policy: str, debug: bool
) -> None:
    by_records, by_columns = OPERATORS[name]
    one = One(by_records, policy_of(policy), as_columns=False)
    other = One(by_columns, policy_of(policy), as_columns=True, debug=debug)
    at = 0
    for rows in batches:
        BAD.clear()
        BAD.update(bad)
        for it in (one, other):
            it.process(rows, at)
        at += len(rows)
        assert repr(other.out) == repr(one.out)
        assert repr(other.letters) == repr(one.letters)
        BAD.difference_update(mended)
        if "stamp" not in name:
            assert other.replay() == one.replay()
        assert repr(other.out) == repr(one.out)
        assert repr(other.letters) == repr(one.letters)
    assert other.operator.take_counts() == one.operator.take_counts()
    assert other.operator.gauges() == one.operator.gauges()


@given(st.integers(1, 300), st.sets(st.integers(0, 299)), st.integers(1, 64))
def test_halves_find_each_failure_and_keep_each_answer(count: int, bad: set[int], share: int) -> None:
    calls: list[tuple[int, int]] = []

    def call(start: int, stop: int) -> list[int]:
        calls.append((start, stop))
        if bad.intersection(range(start, stop)):
            raise ValueError(start)
        return [*range(start, stop)]

    failing = sorted(bad.intersection(range(count)))
    if not failing:
        return
    answers, failed = by_halves(call, count, ValueError(), lambda error: False)
    assert sorted(failed) == failing
    assert [it for answer in answers for it in answer.answer] == [it for it in range(count) if it not in bad]
    assert len(calls) <= 2 * count
    if len(failing) == 1:
        assert len(calls) <= 2 * count.bit_length()


MANY = pa.table({"n": [*range(1000)]})


@pytest.mark.parametrize("bad", [{7}, {0, 999}, set(range(0, 1000, 3)), set(range(1000))])
def test_only_failed_rows_become_objects(bad: set[int]) -> None:
    BAD.clear()
    BAD.update(bad)
    table = pa.table({"n": [*range(1000)], "k": [None if n in bad else "k" for n in range(1000)]})
    table = table.append_column("t", pa.array([None if n in bad else n for n in range(1000)]))
    for build in (
        lambda rows: rows.map_batches("it", double_all, on_error="dead_letter").filter_batches("none", none),
        lambda rows: rows.filter_batches("it", are_small, on_error="skip").filter_batches("none", none),
        lambda rows: rows.key_local("it", "k", on_error="dead_letter").filter_batches("none", none),
        lambda rows: (
            rows.assign_timestamps("it", "t", on_error="skip")
            .generate_epochs("epochs", lambda msg, _: None)
            .late.filter_batches("none", none)
        ),
    ):
        before = rows_made()
        _, runtime = records_of(table, build)
        assert runtime.progress.counts["it"]["failed"] == len(bad)
        made = rows_made() - before
        if "epochs" not in runtime.progress.counts:
            assert made <= 2 * len(bad)


def none(batch: Any) -> Any:
    return pa.array([False] * batch.num_rows)


def test_without_a_policy_the_first_row_is_named() -> None:
    BAD.clear()
    BAD.update({700, 650, 999})
    words = r"operator 'it' failed at key NoKey, value \{'n': 650\}, timestamp 650: ValueError: bad; it is row \d+ of "
    with pytest.raises(OperatorError, match=words) as caught:
        values_of(MANY, lambda rows: rows.map_batches("it", double_all))
    assert "in double_all" in str(caught.value)
    with pytest.raises(OperatorError, match=words):
        values_of(MANY, lambda rows: rows.filter_batches("it", are_small), debug=True)
    assert caught.value.timestamp == 650


def together(batch: Any) -> Any:
    if len({it % 2 for it in batch["n"].to_pylist()}) > 1:
        raise ValueError("odd and even")
    return batch


@pytest.mark.parametrize("on_error", ["fail", "skip", "dead_letter"])
def test_a_function_that_fails_at_neighbours_only(on_error: Any) -> None:
    words = r"'it' failed .*it fails at rows \d+ to \d+ of a batch together, and at none of them alone: ValueErr"
    with pytest.raises(OperatorError, match=words):
        values_of(MANY, lambda rows: rows.map_batches("it", together, on_error=on_error))


def test_no_policy_decides_about_memory() -> None:
    def short(batch: Any) -> Any:
        raise MemoryError("none left")

    with pytest.raises(OperatorError, match=r"'it' failed at a batch of [\d,]+ rows?: MemoryError: none left"):
        values_of(MANY, lambda rows: rows.map_batches("it", short, on_error="skip"))


def test_a_retry_calls_for_failed_rows_alone() -> None:
    calls: list[list[int]] = []

    def fail_once(batch: Any) -> Any:
        numbers = batch["n"].to_pylist()
        calls.append(numbers)
        if 5 in numbers and sum(it == [5] for it in calls) < 3:
            raise ConnectionError("gone")
        if 3 in numbers:
            raise ValueError("bad")
        return batch

    policy = OnError("skip", retry=Retry(attempts=4, first=0.001, on=(ConnectionError,)))
    found, runtime = records_of(
        pa.table({"n": [*range(8)]}), lambda rows: rows.map_batches("it", fail_once, on_error=policy)
    )
    assert [value["n"] for _, value, _ in found] == [0, 1, 2, 4, 5, 6, 7]
    counts = runtime.progress.counts["it"]
    assert (counts["failed"], counts["skipped"], counts["retried"]) == (1, 1, 2)


def test_a_failure_that_passes() -> None:
    """A connection that is back at the next call: no row is to blame."""
    left = [1]

    def flaky(batch: Any) -> Any:
        if batch.num_rows > 1 and left:
            left.pop()
            raise ConnectionError("gone")
        return batch

    policy = OnError("skip", retry=Retry(attempts=2, first=0.001, on=(ConnectionError,)))
    assert len(values_of(MANY, lambda rows: rows.map_batches("it", flaky, on_error=policy))) == 1000


def test_a_letter_that_does_not_fit_the_columns_any_more() -> None:
    BAD.clear()
    BAD.update({1, 2, 3})
    one = One(OPERATORS["map"][1], OnError("dead_letter"), as_columns=True)
    one.process([("a", 1, 0.0), ("a", 2, 0.0), ("a", 3, 0.0)], 0)
    first, second, third = (it[0] for it in one.letters)
    assert one.replay([third]).done == 1  # it fails for the second time
    (entry,) = (it for it in one._letters._letters if it[0] == first)
    held = [*one._letters._letters[entry]]
    held[1] = {"n": "text", "x": 0.0}
    one._letters._letters[entry] = tuple(held)
    BAD.discard(2)
    assert one.replay().done == 3
    (_, _, unfit, _, error, message, attempts, _), (_, _, bad, _, _, _, tries, _) = one.letters
    assert (unfit["n"], error, attempts) == ("text", "UnfitItem", 2)
    assert message.startswith("column 'n' of type int64 can't have 'text'")
    assert (bad["n"], tries) == (3, 3)
    assert second not in [it[0] for it in one.letters]


def test_letters_that_are_replayed_before_any_batch() -> None:
    """Letters of records do not tell types: these are found in the rows."""
    BAD.clear()
    BAD.update({1, 2})
    one = One(OPERATORS["map"][1], OnError("dead_letter"), as_columns=True)
    one.process([("a", 1, 0.0), ("a", 2, 0.0)], 0)
    operator: Any = one.operator
    operator._like = None
    for entry, fields in one._letters._letters.items():
        one._letters._letters[entry] = fields[:-1]
    BAD.clear()
    assert one.replay().done == 2
    assert [it[1]["twice"] for it in one.out if it[0] != "epochs"] == [2, 4]


@dataclass
class Trade:
    """A row."""

    n: Any
    x: Any


TYPED = pa.table(
    {
        "n": pa.array([1, 2, None], pa.int32()),
        "x": pa.array(["a", None, "b"]).dictionary_encode(),
    }
)


@pytest.mark.parametrize("row", [dict, tuple, Trade, "n"], ids=str)
@pytest.mark.parametrize("kind", ["map", "filter"])
def test_types_of_letters_after_a_restart(row: Any, kind: str) -> None:
    """The rows are columns of the same types again, and rows of the same kind; also of letters that fail once more."""
    backend, seen, sink = in_memory(), list[Any](), VecSink[Any, Any, Any]()
    table = TYPED.select(["n"]) if row == "n" else TYPED

    def build(provider: Any, works: Any = None) -> None:
        def function(batch: Any) -> Any:
            if works is None or not works(batch):
                raise ValueError("not yet")
            seen.append(batch.schema)
            return batch if kind == "map" else pa.array([True] * batch.num_rows)

        rows = provider.new_stream().source("rows", ArrowSource(table, row=row))
        add: Any = rows.map_batches if kind == "map" else rows.filter_batches
        add("it", function, on_error="dead_letter").sink("out", sink)

    SingleThreadRuntime(build, backend).execute()
    letters = list(dead_letters(backend))
    assert len(letters) == 3
    for works in (lambda batch: batch["n"].to_pylist() == [2], lambda batch: True):
        runs: Any = partial(build, works=works)
        listener: Any = ReplayingListener("it", Output(quiet=True))
        SingleThreadRuntime(runs, backend, listeners=[listener]).execute()
    assert {str(it.types) for it in seen} == {str([pa.int32(), pa.string()][: table.num_columns])}
    if kind == "filter":
        assert sorted(map(repr, sink.values)) == sorted(repr(it.value) for it in letters)
    assert len(sink) == 3


@pytest.mark.parametrize("sizes", [[], [3], [1, 1, 1]])
def test_letters_are_the_same_however_batches_are_cut(sizes: list[int]) -> None:
    BAD.clear()
    BAD.update({1, 4})
    table = pa.table({"n": [*range(6)]})
    found, runtime = records_of(
        cut(table, sizes), lambda rows: rows.map_batches("it", double_all, on_error="dead_letter")
    )
    assert [value["n"] for _, value, _ in found] == [0, 2, 3, 5]
    assert runtime.progress.counts["it"]["letters"] == 2
