"""Look-ups: one call for the distinct keys of a batch, joined as by a dict, whatever is cached or fails."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, MultiProcessRuntime, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.event_time.tick import Tick
from malflow.lookups import LookupTable
from malflow.operators.calls.lookup import Lookup
from malflow.operators.contract import OperatorContext
from malflow.records.batch import Batch
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

ROWS = {number: f"row {number}" for number in range(0, 40, 2)}


class Table(LookupTable[int, str]):
    """A table that notes the keys of each call."""

    def __init__(self, rows: Mapping[Any, Any] = ROWS) -> None:
        self.rows = rows
        self.calls: list[list[int]] = []
        self.closed = 0

    def get_many(self, keys: Sequence[int]) -> Mapping[int, str]:
        self.calls.append([*keys])
        return {key: self.rows[key] for key in keys if key in self.rows}

    def close(self) -> None:
        self.closed += 1


def joined(values: Sequence[Any], table: Any, **options: Any) -> list[Any]:
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        stream: Any = provider.new_stream().source("numbers", SingleIteratorSource(values))
        stream.lookup("names", options.pop("by", None), table, lambda *them: them, **options).sink("out", sink)

    SingleThreadRuntime(build).execute()
    return [message.value for message in sink]


@given(values=st.lists(st.integers(0, 45)), inner=st.booleans(), cached=st.booleans())
@pytest.mark.slow
def test_records_are_joined_as_with_a_dict(values: list[int], inner: bool, cached: bool) -> None:
    table = Table()
    options: dict[str, Any] = {"how": "inner" if inner else "left", "cache": timedelta(hours=1) if cached else None}
    found = joined(values, table, **options)
    assert found == [(n, ROWS.get(n)) for n in values if not inner or n in ROWS]
    asked = [key for call in table.calls for key in call]
    assert [*dict.fromkeys(asked)] == [*dict.fromkeys(values)], "in the order of the records"
    assert all(len({*call}) == len(call) for call in table.calls)
    assert not cached or len(asked) == len({*asked})
    assert table.closed > 0


def batch(*values: Any) -> Batch:
    return Batch(None, values, [0] * len(values))


def looking_up(table: Any, **options: Any) -> Lookup:
    how: dict[str, Any] = {"inner": False, "cache": None, "most": 100, **options}
    return Lookup(OperatorContext("names"), None, table, lambda value, row: (value, row), **how)


def test_the_cache_forgets_rows_after_their_time_and_absence_sooner() -> None:
    table = Table({1: "one"})
    operator = looking_up(table, cache=timedelta(seconds=100))
    start = datetime(2024, 1, 1, tzinfo=UTC)
    for seconds, asked in ((0, [1, 2]), (9, []), (11, [2]), (99, [2]), (101, [1])):
        operator.begin_tick(Tick(now=start + timedelta(seconds=seconds)))
        (out,) = operator.process(batch(1, 2, 1))
        assert out.values == [(1, "one"), (2, None), (1, "one")]
        assert table.calls == ([asked] if asked else [])
        table.calls.clear()
    counts = operator.take_counts()
    assert counts == {"asked": 5, "absent": 3, "cached": 5}
    assert operator.take_counts() == {"asked": 0, "absent": 0, "cached": 0}


def test_the_cache_keeps_the_rows_that_were_used_last() -> None:
    table = Table()
    operator = looking_up(table, cache=timedelta(hours=1), most=2)
    for values in ((0, 2), (0,), (4,), (0,), (2,)):
        operator.process(batch(*values))
    assert table.calls == [[0, 2], [4], [2]]


class Answers(LookupTable[Any, Any]):
    """Answers as it was told, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def get_many(self, keys: Sequence[Any]) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def __repr__(self) -> str:
        return "Answers()"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, r"get_many\(\) must return a mapping of keys to rows; got None"),
        ([("b", 1)], r"get_many\(\) must return a mapping of keys to rows; got \[\('b', 1\)\]"),
        ({"b": 1, "x": 2}, r"get_many\(\) returned a row of 'x', which was not asked for"),
        (TimeoutError("no answer within 5 s"), "TimeoutError: no answer within 5 s"),
    ],
)
def test_a_wrong_answer_names_key_and_table(answer: Any, problem: str) -> None:
    told = rf"'names' failed at key .*, value 'b', .*: the look-up of 'b' and 1 more in Answers\(\): {problem}"
    with pytest.raises(OperatorError, match=told):
        looking_up(Answers(answer)).process(batch("b", "c", "b"))


def test_functions_that_fail_name_their_record() -> None:
    with pytest.raises(OperatorError, match=r"value 'x'.*ValueError: invalid literal"):
        joined(["1", "x"], Table(), by=int)
    for values in ([(1,), [2]], [[2], (1,)], [[2]]):
        with pytest.raises(OperatorError, match=r"value \[2\].*unhashable"):
            looking_up(Table()).process(batch(*values))
    operator = looking_up(Table())
    operator.callback = lambda value, row: value + len(row)
    with pytest.raises(OperatorError, match=r"value 3, .*TypeError"):
        operator.process(batch(2, 3))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"table": {1: 2}}, r"operator 'names' table .*get_many"),
        ({"how": "outer"}, "how must be 'left' or 'inner'; got 'outer'"),
        (
            {"cache": "soon"},
            r"operator 'names' cache must be a time above zero, such as '10s', .* or None; got 'soon'",
        ),
        ({"cache": timedelta(0)}, "above zero"),
        ({"most": 0}, "most must be a whole number, at least 1; got 0"),
        ({"by": 5}, "by"),
    ],
)
def test_arguments_are_checked_when_the_dataflow_is_built(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        joined([1], options.pop("table", Table()), **options)


class Squares(LookupTable[int, int]):
    """A table that can be pickled."""

    def get_many(self, keys: Sequence[int]) -> Mapping[int, int]:
        return {key: key * key for key in keys}


def into(found: Any) -> Any:
    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(50)))
        keyed = numbers.key_distribute("key", lambda msg: msg.value % 7)
        keyed.lookup("square", None, Squares(), lambda n, row: (n, row)).sink("out", found)

    return build


@pytest.mark.slow
def test_copies_answer_in_other_processes() -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    MultiProcessRuntime(into(sink), parallelism=3, processes=2).execute()
    assert sorted(message.value for message in sink) == [(n, n * n) for n in range(50)]
    assert pickle.loads(pickle.dumps(Squares())).get_many([3]) == {3: 9}
