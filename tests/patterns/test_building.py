"""Patterns as values: their repr, and mistakes that are rejected when they are built."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from malflow import GraphError
from malflow.patterns import Pattern, absent, step

MINUTE = timedelta(minutes=1)

a, b, c, d, e = (step(name) for name in "abcde")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (a, "a"),
        (a.then(b).then(c), "a -> b -> c"),
        (a.then(b.then(c)), "a -> (b -> c)"),
        (a.next(b).then_any(c), "a => b ~> c"),
        (a.then(b, within=5, without=c), "a ->[!c, within 5] b"),
        (a.times(3, without=b).then(b).within(5 * MINUTE), "a{3}[!b] -> b within 0:05:00"),
        (a.times(2, 4), "a{2,4}"),
        (a.at_least(2, by="next"), "a{2,}[=>]"),
        (a.then(b).times(2), "(a -> b){2}"),
        (a.then(b.optional()).then(c), "a -> b? -> c"),
        (a.then_not(b, during=MINUTE), "a -> not b for 0:01:00"),
        (a.then(b).then_not(c).within(9), "a -> b -> not c within 9"),
        (a.then(b.then_not(c, during=2)), "a -> (b -> not c for 2)"),
        (a.then_not(b, during=2).then(c), "a -> not b for 2 -> c"),
        (absent(a, during=30).then(b), "not a for 30 -> b"),
        (absent(a, during=30).then(b | c), "not a for 30 -> (b | c)"),
        (a.then(b & c), "a -> (b & c)"),
        (a | b | c.then(d), "a | b | (c -> d)"),
        (step("the first").then(step("not")), "'the first' -> 'not'"),
    ],
)
def test_a_pattern_prints_as_it_is_written(pattern: Pattern[Any], text: str) -> None:
    assert str(pattern) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (a.times(3).then(b).within(5), a.times(2, 7).then(b)),
        (a.then_not(b, during=5), a.then_not(b).within(3)),
        (a.then(b, within=5), a.then(step("b", lambda value: value > 1), within=7)),
        (absent(a, during=5).then(b), absent(a, during=7).then(b)),
    ],
)
def test_numbers_durations_and_predicates_are_not_in_the_shape(one: Pattern[Any], other: Pattern[Any]) -> None:
    assert one.shape == other.shape


@pytest.mark.parametrize(
    "other",
    [
        a.then(c),
        b.then(a),
        a.next(b),
        a.then_any(b),
        a.then(b, without=c),
        a.then(b.times(2)),
        a.then_not(b, during=5),
        absent(b, during=5).then(a),
        a | b,
        a & b,
        a.then(b).then(b),
    ],
)
def test_steps_connectors_and_nesting_are_in_the_shape(other: Pattern[Any]) -> None:
    assert a.then(b).shape != other.shape


def test_a_pattern_is_a_value() -> None:
    assert a.then(b) == a.then(b)
    assert hash(a.then(b)) == hash(a.then(b))
    with pytest.raises(AttributeError):
        a.span = 5  # type: ignore[misc]


def test_steps_that_take_events_precede_those_that_must_not_come() -> None:
    assert absent(e, during=5).then(b.then(a, without=d).then_not(c, during=5)).steps == ("b", "a", "c", "d", "e")


async def soon(value: Any) -> bool:
    return bool(value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: step(3), "printable, non-blank string as its name; got 3"),  # type: ignore[call-overload]
        (lambda: step(" "), "printable, non-blank string"),
        (lambda: step("a", len, len), "step 'a' has two predicates"),  # type: ignore[call-overload]
        (lambda: step("a", int, 3), "step 'a' where must be a plain function; got 3"),  # type: ignore[call-overload]
        (lambda: step("a", ["a"]), "step 'a' needs a class, a predicate, or a hashable value as its kind"),  # type: ignore[call-overload]
        (lambda: step("a", (int, str)), r"several as One \| Other"),
        (lambda: step("a", list[int]), "without parameters"),
        (lambda: step("a", soon), "step 'a' where must be a plain function; got a coroutine function"),
        (lambda: step("a", lambda value, so_far: True), r"step 'a' calls where\(value\), but .* other arguments"),  # type: ignore[arg-type,misc]
        (lambda: step("a", given=lambda value: True), r"step 'a' calls given\(value, so_far\)"),  # type: ignore[misc,arg-type]
        (lambda: a.then(len), r"then\(\) needs a pattern, such as step\(...\)"),  # type: ignore[arg-type]
        (lambda: a.then(absent(b, during=5)), r"call .then_not\(\)"),  # type: ignore[arg-type]
        (lambda: a.next(b, without=c), "no event lies between an event and the next one; use 'then'"),  # type: ignore[arg-type]
        (lambda: a.times(3, by="next", without=c), "no event lies between an event and the next one; use 'then'"),
        (lambda: a.then(b, without=b.then(c)), "one step.* as its without; got b -> c"),
        (
            lambda: a.then(b, within="5 parsecs"),
            "within must be .*, or a text such as '5 min' for datetimes; got '5 parsecs'",
        ),
        (lambda: a.then(b, within=True), "within must be a number or timedelta of zero or more, .*; got True"),
        (lambda: a.within(float("nan")), "duration must be a number or timedelta of zero or more, .*; got nan"),
        (lambda: a.within(-1), "duration must be a number or timedelta of zero or more, .*; got -1"),
        (lambda: a.then_not(b, during=-MINUTE), "during must be a number or timedelta of zero or more"),
        (lambda: a.then(b, within=MINUTE).within(5), "durations of different types: 5, .*timedelta"),
        (lambda: absent(a, during=5).then(b.within(MINUTE)), "durations of different types"),
        (lambda: a.within(5).then(b), r"a within 5 has a within\(\), .* call it after then\(\)"),
        (lambda: b.then(a.within(5)), r"a within 5 has a within\(\)"),
        (lambda: a.within(5) | b, r"within\(\), which applies to a whole pattern"),
        (lambda: a.within(5).times(2), r"within\(\), which applies to a whole pattern"),
        (lambda: a.within(5).within(6), r"already has a within\(\)"),
        (lambda: a.then(absent(b, during=5).then(c)), r"begins with absent\(\), which belongs before"),
        (lambda: absent(b, during=5).then(absent(b, during=5).then(c)), r"already begins with absent\(\)"),
        (lambda: absent(b, during=None), r"absent\(\) needs a number or a timedelta as its during; got None"),
        (lambda: absent(a.then(b), during=5), "one step.* as its step; got a -> b"),
        (lambda: a.then_not(b).then(c), r"nothing can follow; write then_not\(..., during=...\)"),
        (lambda: a.then_not(b).times(2), "can't be repeated"),
        (lambda: a.then_not(b, during=5).then_not(c, during=5), "ends with an absence"),
        (lambda: a.then(step("a", len)), "two different steps named 'a'"),
        (lambda: a.then(b, without=step("a", len)), "two different steps named 'a'"),
        (lambda: a.times(3, 2), "a low that does not exceed the high; got 3 and 2"),
        (lambda: a.times(0), "high must be a whole number, at least 1; got 0"),
        (lambda: a.times(True), r"times\(\) low must be a whole number, at least 0; got True"),
        (lambda: a.times(2, by="after"), "by must be 'then', 'next' or 'then_any'; got 'after'"),  # type: ignore[arg-type]
        (lambda: a.times(100).times(11), "up to 1,000 steps, including repetitions; this one has 1,100"),
        (lambda: a & b.then(c), "& needs steps on both sides; got b -> c"),
        (lambda: a & b & c & d & e, "& takes up to 4 steps; got 5"),
        (lambda: a | len, r"\| needs a pattern"),  # type: ignore[operator]
        (lambda: a.then(b) and c, "write | and & instead of 'or' and 'and'"),
        (lambda: a.optional().check(), "needs no event"),
        ((a | b.optional()).check, "needs no event"),
        (lambda: a.then_not(b).check(), r"waits forever; .* or call .within\(\)"),
    ],
)
def test_mistakes_are_refused_while_a_pattern_is_built(build: Callable[[], object], message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        build()
    assert caught.value.location is not None
    assert __file__ in caught.value.location


@pytest.mark.slow
def test_a_thousand_steps_in_a_row_are_a_pattern() -> None:
    pattern = a
    for _ in range(999):
        pattern = pattern.then(a)
    pattern.check()
    with pytest.raises(GraphError, match="this one has 1,001"):
        pattern.then(a)


def test_a_pattern_as_deep_as_python_s_stack_is_refused() -> None:
    nested = a
    for _ in range(99):
        nested = b.then(nested)
    with pytest.raises(GraphError, match="up to 100 deep"):
        b.then(nested)
