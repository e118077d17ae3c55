"""The difference between two runs that is reported, and what does not count as one."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from threading import Lock
from typing import Any

import pytest

from malflow import StreamProvider
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing.differences import difference
from malflow.testing.laws import likeness
from malflow.testing.trial import Outcome, State, Written, built


def two_operators(provider: StreamProvider) -> None:
    stream = provider.new_stream().source("in", SingleIteratorSource([])).key_distribute("key", lambda msg: 0)
    stream.stateful_map("first", lambda key, value, state: (value, state)).sink("out", VecSink())


PROGRAM = built(two_operators)


def state(value: Any, worker: int | None = None) -> State:
    return State(likeness(value), worker, "'k'", repr(value))


def message(value: Any) -> Written:
    return Written(likeness(value), "'k'", repr(value))


def outcome(states: list[Any], kept: list[Any], written: list[Any]) -> Outcome:
    held: dict[Hashable, State] = {(None, at): state(value) for at, value in enumerate(states)}
    messages = [message(value) for value in kept]
    return Outcome({"in": {}, "first": held}, {"out": messages}, {"out": [message(value) for value in written]})


EXPECTED = outcome([1, 2], ["a", "b", "b"], ["a", "b", "b"])


@pytest.mark.fault("F7")
def test_reordered_and_repeated_messages_are_no_difference() -> None:
    assert difference(PROGRAM, EXPECTED, outcome([1, 2], ["b", "a", "b"], ["b", "b", "a", "b"])) == []


def test_the_operator_that_comes_first_is_told() -> None:
    assert difference(PROGRAM, EXPECTED, outcome([1, 3], ["a"], ["x"])) == [
        "operator 'first' has a different state for key 'k':",
        "  expected 2",
        "  got      3",
    ]


def test_a_state_too_many_and_one_too_few_are_differences() -> None:
    assert difference(PROGRAM, EXPECTED, outcome([1], [], []))[1:] == ["  expected 2", "  got      none"]
    assert difference(PROGRAM, EXPECTED, outcome([1, 2, 3], [], []))[1:] == ["  expected none", "  got      3"]


def test_a_worker_is_told_where_it_counts() -> None:
    expected = replace(EXPECTED, states={"in": {}, "first": {(1, "k"): state(1, 1)}})

    lines = difference(PROGRAM, expected, replace(EXPECTED, states={"in": {}, "first": {}}))

    assert lines[0] == "operator 'first' has a different state for key 'k' on worker 1:"


@pytest.mark.parametrize(
    ("kept", "expected", "got"),
    [
        (["a", "b"], "'b'", "nothing in its place"),
        (["a", "b", "b", "b"], "nothing in its place", "'b'"),
        (["a", "b", "c"], "'b'", "'c'"),
        (["c", "d", "e", "f", "g"], "'a', 'b', 'b'", "'c', 'd', 'e', and 2 more"),
    ],
)
def test_messages_too_few_or_too_many_are_told(kept: list[Any], expected: str, got: str) -> None:
    assert difference(PROGRAM, EXPECTED, outcome([1, 2], kept, kept)) == [
        "sink 'out' got different messages for key 'k':",
        f"  expected {expected}",
        f"  got      {got}",
    ]


def test_a_message_that_is_never_right_is_told_though_a_crash_undid_it() -> None:
    assert difference(PROGRAM, EXPECTED, outcome([1, 2], ["a", "b", "b"], ["a", "x", "b", "b"])) == [
        "sink 'out' got wrong messages for key 'k', although a crash discarded them:",
        "  expected 'a', 'b', 'b'",
        "  got      'x'",
    ]


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass
class Data:
    value: Any
    cache: Any = field(default=None, compare=False)


def local_class(value: Any) -> Any:
    class Local:
        def __init__(self) -> None:
            self.value = value

    return Local()


MAKERS = [Plain, Slotted, Data, local_class, lambda v: [v], lambda v: {v: v}, lambda v: {v}, lambda v: deque([v])]


@pytest.mark.parametrize("make", MAKERS)
def test_objects_are_alike_only_if_their_parts_are(make: Any) -> None:
    assert likeness(make(1)) == likeness(make(1))
    assert hash(likeness(make("x"))) == hash(likeness(make("x")))
    assert likeness(make(1)) != likeness(make(2))
    assert likeness([make(1)]) != likeness([make(2)])


def test_kinds_of_containers_and_classes_are_told_apart() -> None:
    things = [[1], (1,), {1}, frozenset({1}), {1: 1}, OrderedDict({1: 1}), deque([1]), Plain(1), Data(1), Decimal(1)]

    assert len({likeness(thing) for thing in things}) == len(things)


def test_dict_order_and_uncompared_fields_do_not_count() -> None:
    assert likeness({1: 2, 3: 4}) == likeness({3: 4, 1: 2})
    assert likeness(Data(1, cache="x")) == likeness(Data(1, cache="y"))


def test_object_that_holds_itself_has_a_likeness() -> None:
    def ring(length: int) -> list[Any]:
        first: list[Any] = []
        last = first
        for _ in range(length - 1):
            last.append([])
            last = last[0]
        last.append(first)
        return first

    assert likeness(ring(2)) == likeness(ring(2))
    assert likeness(ring(2)) != likeness(ring(3))


def test_opaque_object_is_like_all_of_its_class() -> None:
    assert likeness(Lock()) == likeness(Lock())
    assert likeness(likeness) != likeness(difference)
