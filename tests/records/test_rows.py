"""Rows and changes of columns, beside a list of the same values."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from malflow import TableChange
from malflow.records.batch import Batch, concat, interleave
from malflow.records.changes import Changes, changes_of, rows_after, rows_of
from malflow.records.rows import Rows, SomeFields, as_rows, only_fields

names = st.lists(st.sampled_from("abc"), unique=True, max_size=3)
Act = Callable[[Sequence[Any]], Sequence[Any]]


def batch_of(values: Sequence[Any]) -> Batch:
    return Batch(None, values, range(len(values)))


@st.composite
def acts(draw: st.DrawFn, length: int) -> Act:
    """Draw something that operators do with a column of values."""
    mask = draw(st.lists(st.integers(0, 1), min_size=length, max_size=length))
    start, stop = sorted(draw(st.lists(st.integers(0, length), min_size=2, max_size=2)))
    size = max(1, draw(st.integers(1, max(1, length))))

    def cuts(values: Sequence[Any]) -> list[Batch]:
        return [batch_of(values[at : at + size]) for at in range(0, len(values), size)]

    choices: list[Act] = [
        lambda values: batch_of(values).select(mask).values,
        lambda values: batch_of(values).part(start, stop).values,
        lambda values: batch_of(values).take([at for at, flag in enumerate(mask) if flag]).values,
        lambda values: concat(cuts(values)).values if values else values,
        lambda values: interleave(cuts(values)).values,
        lambda values: pickle.loads(pickle.dumps(values, 5)),
    ]
    return draw(st.sampled_from(choices))


@given(st.data(), names, st.integers(0, 12), st.booleans())
def test_rows_behave_like_a_list_of_dicts(data: st.DataObject, some: list[str], count: int, whole: bool) -> None:
    if whole and not some:
        some = ["a"]
    dicts: Sequence[Any] = [{name: (name, number) for name in some} for number in range(count)]
    rows: Sequence[Any] = Rows({name: [row[name] for row in dicts] for name in some}, count, whole)
    for _ in range(data.draw(st.integers(0, 3))):
        act = data.draw(acts(len(dicts)))
        dicts, rows = act(dicts), act(rows)
        assert len(rows) == len(dicts)
    assert list(rows) == list(dicts)
    assert all(type(row) is (dict if whole else SomeFields) for row in rows)


@given(st.data(), st.integers(0, 12))
def test_changes_behave_like_a_list_of_them(data: st.DataObject, count: int) -> None:
    befores, afters = [("before", number) for number in range(count)], [("after", number) for number in range(count)]
    pairs: Sequence[Any] = list(map(TableChange, befores, afters))
    changes: Sequence[Any] = changes_of(befores, afters)
    for _ in range(data.draw(st.integers(0, 3))):
        act = data.draw(acts(len(pairs)))
        pairs, changes = act(pairs), act(changes)
        assert len(changes) == len(pairs)
    assert list(rows_after(changes)) == [change.after for change in pairs]
    assert tuple(map(list, rows_of(changes))) == ([it.before for it in pairs], [it.after for it in pairs])
    assert list(changes) == list(pairs)
    assert all(type(change) is TableChange for change in changes)


def test_changes_are_columns_until_one_is_read() -> None:
    changes = changes_of([None, "a"], ["a", "b"])
    assert pickle.loads(pickle.dumps(changes)).columns == {"before": [None, "a"], "after": ["a", "b"]}
    assert rows_after(changes) is changes.column("after")
    assert changes[1] is changes[1]
    assert changes.columns is None
    assert type(pickle.loads(pickle.dumps(changes))) is list


def test_changes_and_rows_with_the_same_columns_are_not_joined() -> None:
    columns = {"before": [1], "after": [2]}
    parts = [Batch(None, Changes(columns), [0]), Batch(None, Rows(columns), [0])]
    assert list(concat(parts).values) == [TableChange(1, 2), {"before": 1, "after": 2}]


def test_columns_that_were_joined_are_still_columns() -> None:
    parts = [Batch(None, Rows({"a": [1], "b": [2]}), [0]), Batch(None, Rows({"a": [3], "b": [4]}), [1])]
    joined = concat(parts).values
    assert type(joined) is Rows
    assert joined.columns == {"a": [1, 3], "b": [2, 4]}
    others = [*parts, Batch(None, Rows({"b": [6], "a": [5]}), [2])]
    assert list(map(list, concat(others).values)) == [["a", "b"], ["a", "b"], ["b", "a"]]


@pytest.mark.parametrize("values", [[{"a": 1}, {}], [{"a": 1}, None], [], [SomeFields(a=1)], [1, 2]])
def test_values_that_are_no_dicts_with_the_fields_stay(values: list[Any]) -> None:
    assert only_fields(values, {"a": "a"}) is values


class Name(StrEnum):
    first = "first"


class Text(str):
    __slots__ = ()


ANY_KEYS = st.sampled_from(["a", "b", "c", 1, 1.0, True, Name.first, Text("b")])
ANY_DICTS = st.dictionaries(ANY_KEYS, st.integers(), max_size=3)
ALIKE = st.integers().map(lambda number: json.loads(f'{{"first": {number}, "second": [{number}]}}'))
SAME = st.integers().map(lambda number: {"first": number, "second": [number]})
"""Dicts with the same objects as names."""

OTHERS = st.sampled_from(
    [None, "text", {}, OrderedDict(first=1, second=[1]), {"second": [1], "first": 1}, {"first": 1}, {Name.first: 1}]
)


@given(st.lists(ALIKE, max_size=300) | st.lists(ALIKE | SAME | ANY_DICTS | OTHERS, max_size=5))
@example([json.loads('{"first": 1}'), {Name.first: 1}, json.loads('{"first": 2}')])
def test_dicts_with_the_same_fields_are_sent_as_rows(values: list[Any]) -> None:
    rows = as_rows(values)
    assert [described(it) for it in pickle.loads(pickle.dumps(rows, 5))] == [described(it) for it in values]
    if type(rows) is not Rows:
        assert rows is values


def test_names_that_are_objects_of_their_own_are_sent_once() -> None:
    values = [json.loads('{"first": 1, "second": 2}') for _ in range(1_000)]
    assert type(as_rows(values)) is Rows
    assert as_rows([{"first": 1, "second": 2}] * 1_000)[0] == values[0]


def described(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return type(value), [(name, type(name)) for name in value], list(value.values())
