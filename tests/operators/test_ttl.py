"""The order in which an `ExpireMap` expires, and keys of a `ttl_map` that another worker has changed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import ExpireMap
from malflow.operators.contract import OperatorContext
from malflow.operators.ttl import TtlMap
from malflow.records.batch import Batch
from malflow.snapshot import MsgpackCodec
from malflow.states.keyed import Delta


def keep(key: str, value: str, timestamp: int, entries: Any) -> Any:
    """Put an entry that expires at the time of its record; emit what was there."""
    before = sorted(entries)
    entries.insert(value, timestamp, timestamp)
    return before, entries


def batch(values: str, timestamps: tuple[int, ...], *epochs: tuple[int, int]) -> Batch:
    return Batch(["k"] * len(values), list(values), list(timestamps), epochs)


def test_late_entry_stays_until_the_next_epoch() -> None:
    here, there = (TtlMap(OperatorContext("ttl", 0, range(1), tracked=True), keep) for _ in range(2))
    first = batch("a", (5,), (1, 5))  # the epoch 5 comes after the record
    for operator in (here, there):
        operator.process(first)
        operator.delta()
    here.process(batch("b", (4,)))
    there.apply(pickle.loads(pickle.dumps(here.delta())))
    for operator in (here, there):
        (more,) = operator.process(batch("c", (3,)))
        assert more.values == [["b"]]
        operator.process(batch("", (), (0, 6)))
        (last,) = operator.process(batch("d", (7,)))
        assert last.values == [[]]


def _pickled(entries: Any) -> Any:
    return pickle.loads(pickle.dumps(entries))


def _packed(entries: Any) -> Any:
    return MsgpackCodec().loads(MsgpackCodec().dumps(entries))


def _same(entries: Any) -> Any:
    return entries


steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.sampled_from("abc"), st.integers(0, 4)),
        st.tuples(st.just("remove"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("expire"), st.just(""), st.integers(0, 4)),
        st.tuples(st.sampled_from([_pickled, _packed, copy.deepcopy, _same]), st.just(""), st.just(0)),
    ),
    max_size=40,
)


@given(steps)
def test_entries_expire_in_the_order_of_their_insertion(steps: list[tuple[Any, str, int]]) -> None:
    entries: ExpireMap[str, int, int] = ExpireMap()
    model: list[tuple[int, str, int]] = []  # expiry, key, value, in the order of insertion
    for number, (step, key, time) in enumerate([*steps, ("expire", "", 9)]):
        if step in ("insert", "remove"):
            model = [entry for entry in model if entry[1] != key]
        if step == "insert":
            entries.insert(key, number, time)
            model.append((time, key, number))
        elif step == "remove":
            entries.remove(key)
        elif step == "expire":
            due = sorted((entry for entry in model if entry[0] <= time), key=lambda entry: entry[0])
            assert entries.expire(time) == [(key, value) for _, key, value in due]
            model = [entry for entry in model if entry[0] > time]
        else:
            entries = step(entries)
        assert list(entries) == [key for _, key, _ in model]


def test_entries_may_be_inserted_anew_while_one_walks_over_them() -> None:
    entries: ExpireMap[str, int, int] = ExpireMap()
    for key in "abc":
        entries.insert(key, 0, 1)
    for key in entries:
        entries.insert(key, 1, 2)
    assert entries.expire(2) == [("a", 1), ("b", 1), ("c", 1)]


def test_a_map_pickled_by_an_earlier_version_is_read() -> None:
    state = {"a": (1, 20), "b": (2, 10)}
    entries: ExpireMap[str, int, int] = ExpireMap.__new__(ExpireMap)
    entries.__setstate__(state)
    assert entries.__getstate__() == state
    assert entries.expire(20) == [("b", 2), ("a", 1)]


def _drop(key: str, value: int, timestamp: int, entries: ExpireMap[Any, Any, Any]) -> Any:
    entries.insert(value, value, timestamp + 10**9)
    return None, None if timestamp else entries


def _dropped_by_the_mapper(operator: TtlMap, keys: list[str]) -> None:
    operator.process(Batch(keys, [0] * len(keys), [1] * len(keys)))


def _dropped_by_another_worker(operator: TtlMap, keys: list[str]) -> None:
    operator.apply(Delta(deleted=frozenset(keys)))


def _replaced_by_another_worker(operator: TtlMap, _keys: list[str]) -> None:
    operator.apply(Delta(whole=True))


@pytest.mark.parametrize("drop", [_dropped_by_the_mapper, _dropped_by_another_worker, _replaced_by_another_worker])
def test_keys_that_were_dropped_have_no_timers(drop: Callable[[TtlMap, list[str]], None]) -> None:
    operator = TtlMap(OperatorContext("ttl"), _drop)
    keys = [f"key {number}" for number in range(1000)]
    operator.process(Batch(keys, [0] * len(keys), [0] * len(keys)))
    drop(operator, keys)
    operator.process(Batch(["other"], [0], [0]))
    assert list(operator.state) == ["other"]
    assert list(operator._timers.at) == ["other"]


def test_deletions_of_a_sweep_are_in_the_next_delta() -> None:
    operator = TtlMap(OperatorContext("ttl", tracked=True), _drop)
    operator.apply(Delta({"k": ExpireMap()}, whole=True))
    operator.process(Batch([], [], []))
    assert operator.delta() == Delta(deleted=frozenset("k"))


@dataclass(order=True)
class Version:
    """A timestamp that can be compared, but not hashed."""

    number: int


def _until_version(key: str, value: int, timestamp: Version, entries: ExpireMap[Any, Any, Any]) -> Any:
    entries.insert(value, value, Version(timestamp.number + value))
    return len(entries), entries


def test_expiries_need_not_be_hashable() -> None:
    operator = TtlMap(OperatorContext("ttl", tracked=True), _until_version)
    records = Batch(["a", "b", "c", "a"], [2, 5, 3, 9], [Version(1)] * 4, [(4, Version(4))])
    operator.process(records)
    assert {key: list(entries) for key, entries in operator.state.items()} == {"a": [9], "b": [5]}
    operator.process(Batch(["c"], [1], [Version(5)], [(1, Version(6))]))
    operator.process(Batch([], [], [], [(0, Version(7))]))
    assert list(operator.state) == ["a"]
