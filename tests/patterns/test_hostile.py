"""Hostile input ends in bounded time and memory, or in the error that names the limit."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from math import nan
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from malflow import DataMessage
from malflow.patterns import Pattern, absent, step
from malflow.patterns.automaton import State
from tests.patterns.specs import Spec, built
from tests.patterns.strategies import afters, histories, often, specs

pytestmark = pytest.mark.slow

SECONDS = 20.0 * max(1, settings().max_examples // 100)
"""A bound for tests that take a second or two; without limits they would take minutes, or for ever."""

any_value = step("any")
another = step("another")
third = step("third")
fourth = step("fourth")


@pytest.fixture(autouse=True)
def _in_bounded_time() -> Iterator[None]:
    begun = process_time()
    yield
    assert process_time() - begun < SECONDS


class Unequal:
    """A value that is never equal to anything, itself included."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 1


class Incomparable:
    """A value that can be neither compared nor hashed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    def __lt__(self, other: object) -> bool:
        raise RuntimeError("ordered")

    def __bool__(self) -> bool:
        raise RuntimeError("asked for its truth")

    __hash__ = None  # type: ignore[assignment] # on purpose


class Doubtful:
    """What a predicate returns by mistake: its truth is not defined."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


def at_once(count: int) -> list[DataMessage[str, int, int]]:
    """Return messages with one timestamp."""
    return [DataMessage("key", number, 7) for number in range(count)]


@pytest.mark.parametrize(
    "pattern",
    [
        any_value.then(another).then(third),
        any_value.at_least(1).then(another),
        any_value.times(3).then(another).within(5),
        any_value & another & third & fourth,
        (any_value | another).at_least(1).then(third | fourth),
        any_value.optional().then(another.optional()).then(third),
        any_value.then_not(another, during=3).then(third),
        absent(another, during=1).then(any_value),
        any_value.next(another).times(2),
    ],
    ids=str,
)
@pytest.mark.parametrize("after", ["end", "start"])
def test_records_that_fit_every_step(pattern: Pattern[Any], after: Any) -> None:
    found = pattern.find(range(2_000), after=after)
    starts = [match.start for match in found]
    assert starts == sorted(starts)
    assert len(set(starts)) == len(starts)


def test_every_way_through_three_steps_reaches_the_limit() -> None:
    pattern = any_value.then_any(another).then_any(third).then_any(fourth)
    with pytest.raises(RuntimeError, match="the limit is 1,000"):
        pattern.find(range(1_000), after="all")


def test_the_limit_names_the_key_and_the_way_out() -> None:
    pattern = any_value.then_any(another)
    with pytest.raises(RuntimeError, match=r"partial matches for key 'key', the limit is 10.*within.*limit="):
        pattern.find(at_once(11), after="all", limit=10)


@pytest.mark.parametrize("after", ["end", "start", "all"])
def test_a_start_that_nothing_follows_is_bounded_by_the_limit(after: Any) -> None:
    pattern = step("start", lambda value: value >= 0).then(step("never", lambda value: value < 0))
    if after == "end":
        assert pattern.find(range(50_000)) == []  # the later starts have the future of the first
        return
    with pytest.raises(RuntimeError, match="the limit is 1,000"):
        pattern.find(range(50_000), after=after)


@pytest.mark.slow
def test_a_million_equal_timestamps() -> None:
    pattern = step("zero", lambda value: value == 0).then(step("last", lambda value: value == 999_999))
    (match,) = pattern.find(at_once(1_000_000))
    assert [event.value for event in match.events] == [0, 999_999]


def test_equal_timestamps_that_all_start_reach_the_limit() -> None:
    pattern = any_value.then(step("never", lambda value: value < 0)).within(5)
    with pytest.raises(RuntimeError, match="the limit is 1,000"):
        pattern.find(at_once(5_000))


def test_a_loop_over_many_records_is_linear() -> None:
    pattern = step("up", lambda value: value >= 0).at_least(1).then(step("down", lambda value: value < 0))
    (match,) = pattern.find([*range(100_000), -1])
    assert len(match.events) == 100_001


@pytest.mark.parametrize("kind", [Unequal, Incomparable])
@pytest.mark.parametrize("after", ["end", "start", "all"])
def test_values_that_can_not_be_compared(kind: Any, after: Any) -> None:
    a, b = step("a", kind, lambda value: value.name == "a"), step("b", kind, lambda value: value.name == "b")
    rising = step("a", kind, lambda value: value.name == "a", given=lambda _value, so_far: so_far.last("a") is None)
    values = [kind("a"), kind("b"), kind("a"), kind("a"), kind("b")]
    pattern = a.at_least(1).then(b, without=step("c", kind, lambda value: value.name == "c"))
    assert pattern.find(values, after=after)[0].events[0].value is values[0]
    assert len(rising.then_not(b, during=9).find([values[0]], after=after)) == 1


@pytest.mark.parametrize("after", ["end", "start", "all"])
def test_numbers_that_are_not_equal_to_themselves(after: Any) -> None:
    number = step("number", float)
    (match, *_) = number.then(number).find([nan, nan], after=after)
    assert len(match["number"]) == 2
    by_kind = step("nan", nan).then(step("nan", nan))
    assert len(by_kind.find([nan, nan], kind=lambda value: value, after=after)) <= 1


@pytest.mark.parametrize("returned", [None, 0, "", [], 0.0])
def test_predicates_may_return_anything_false(returned: Any) -> None:
    assert step("none", lambda _value: returned).find(range(10)) == []
    assert step("none", given=lambda _value, _so_far: returned).find(range(10)) == []


@pytest.mark.parametrize("returned", [1, "no", [0], object(), nan])
def test_predicates_may_return_anything_true(returned: Any) -> None:
    assert len(step("all", lambda _value: returned).find(range(10))) == 10
    assert len(step("all", given=lambda _value, _so_far: returned).find(range(10))) == 10


@pytest.mark.parametrize("role", ["where", "given"])
def test_predicates_without_a_truth_fail(role: str) -> None:
    doubtful: Any = {"where": lambda _value: Doubtful(), "given": lambda _value, _so_far: Doubtful()}
    with pytest.raises(ValueError, match="ambiguous"):
        step("doubtful", **{role: doubtful[role]}).find(range(3))


@pytest.mark.parametrize("role", ["where", "given"])
def test_predicates_that_raise_fail(role: str) -> None:
    raising: Any = {"where": lambda value: 1 / value, "given": lambda value, _so_far: 1 / value}
    with pytest.raises(ZeroDivisionError):
        step("inverse", **{role: raising[role]}).find([2, 1, 0])


def test_given_may_not_ask_for_a_step_that_is_not_there() -> None:
    typo = step("rise", given=lambda value, so_far: not so_far["rises"] or value)
    with pytest.raises(KeyError, match="no step 'rises'; did you mean 'rise'"):
        typo.find([1])


@pytest.mark.slow
def test_branches_that_end_one_by_one_do_not_fill_the_memory() -> None:
    branches = 18
    start = step("start", lambda value: value == "start")
    counts = []

    def count(_value: Any, _so_far: Any) -> bool:
        counts.append(sum(isinstance(it, State) for it in gc.get_objects()))
        return True

    def branch(number: int) -> Pattern[Any]:
        bit = step(f"end of {number}", lambda value: isinstance(value, int) and value >> number & 1)
        return start.then(step(f"never {number}", lambda value: value is None), without=bit)

    pattern: Pattern[Any] = step("last", lambda value: value == "last", given=count)
    for number in range(branches):
        pattern |= branch(number)
    values = [it for number in range(15_000) for it in ("start", number * 40_503 % 2**branches)]
    pattern.within(10).find([DataMessage("key", it, at // 2 * 20) for at, it in enumerate([*values, "last"])])
    assert counts[0] < 11_000


@often
@given(specs(), afters, histories(30), st.integers(1, 20))
def test_any_pattern_ends_or_names_the_limit(spec: Spec, after: Any, events: Any, limit: int) -> None:
    everything = [DataMessage("key", ("abc", number), time) for time, (_, number) in events]
    pattern = built(spec)
    try:
        below = pattern.find(everything, after=after, limit=limit)
    except RuntimeError as error:
        assert "the limit is" in str(error)  # noqa: PT017 - the other outcome is tested as well
        return
    assert below == pattern.find(everything, after=after, limit=10 * limit)
