"""Timestamps at the limits of their types: correct matches, or an error that names the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import DataMessage, OperatorError, SingleThreadRuntime
from malflow.patterns import Pattern, absent, step
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import ScriptedSource, Timed
from tests.patterns.running import outputs_of
from tests.patterns.specs import Either, Silence, Spec, Then, Times, Tree, built
from tests.patterns.strategies import History, afters, histories, seldom, specs

HOUR = timedelta(hours=1)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

a, b, c = (step(name, where=name.__eq__) for name in "abc")


def found(pattern: Pattern[Any], *records: tuple[Any, str]) -> list[list[Any]]:
    """Return the timestamps of each match."""
    return [[event.timestamp for event in match.events] for match in messages_found(pattern, *records)]


def messages_found(pattern: Pattern[Any], *records: tuple[Any, str]) -> Any:
    """Return the matches, and the timeouts with them."""
    return pattern.find([DataMessage("x", value, at) for at, value in records])


def unordered(pattern: Pattern[Any], *records: tuple[Any, str]) -> list[Any]:
    """Return the matches in a stream without epochs."""
    sink: VecSink[Any, Any, Any] = VecSink()
    source = StatefulSource(ScriptedSource([Timed(value, at) for at, value in records]))

    def build(provider: Any) -> None:
        keyed = provider.new_stream().source("source", source).key_distribute("key", lambda msg: "x")
        keyed.match("match", pattern, order="arrival").matches.sink("sink", sink)

    SingleThreadRuntime(build).execute()
    return list(sink)


TIMED = [
    a.then(b).within(HOUR),
    a.then(b, within=HOUR),
    a.then_not(b, during=HOUR),
    a.then_not(b).within(HOUR),
    a.then_not(c, during=HOUR).then(b),
    absent(a, during=HOUR).then(b),
]


@pytest.mark.parametrize("order", ["time", "arrival"])
@pytest.mark.parametrize("pattern", TIMED, ids=str)
def test_a_deadline_out_of_range_names_record_and_duration(pattern: Pattern[Any], order: str) -> None:
    items = [("x", LAST - HOUR / 2, "a"), ("x", LAST, "b"), ("x", LAST, "b")]
    message = (
        r"operator 'match' failed at key 'x', value '[ab]', timestamp .*9999.*seconds=3600\) after .* is out of range"
    )
    with pytest.raises(OperatorError, match=message):
        outputs_of(items, timedelta(0), pattern, order=order)


def test_a_deadline_out_of_range_without_a_runtime() -> None:
    with pytest.raises(OverflowError, match=r"out of range .*; filter such records, or shorten the duration"):
        found(TIMED[0], (LAST, "a"))
    assert found(a.then(b), (LAST, "a"), (LAST, "b")) == [[LAST] * 2]


@pytest.mark.parametrize(("least", "step"), [(FIRST, HOUR), (date.min, timedelta(days=1)), (timedelta.min, HOUR)])
def test_the_least_timestamps_are_as_others(least: Any, step: timedelta) -> None:
    whole = [(least, "a"), (least + step, "b"), (least + step, "a"), (least + 3 * step, "b")]
    assert found(a.then(b).within(step), *whole) == [[least, least + step]]
    assert found(absent(c, during=step).then(a), *whole) == [[least], [least + step]]
    assert found(a.then_not(b, during=step), *whole) == [[least + step]]


def test_infinite_timestamps_are_behind_and_before_all_others() -> None:
    late = messages_found(a.then(b).within(5), (1.0, "a"), (inf, "b"))
    assert (late, [match.start for match in late.timeouts]) == ([], [1.0])
    assert found(a.then(b).within(5), (inf, "a"), (inf, "b")) == [[inf, inf]]
    assert found(a.then(b).within(5), (-inf, "a"), (-inf, "b"), (0.0, "b")) == [[-inf, -inf]]
    assert found(a.then_not(b, during=5), (1.0, "a"), (inf, "b"), (inf, "a")) == [[1.0], [inf]]


@pytest.mark.parametrize("great", [10**400, Decimal(2**63), 2**63])
def test_numbers_beyond_floats_are_exact(great: Any) -> None:
    records = (great, "a"), (great + 5, "b"), (great + 6, "a"), (great + 12, "b")
    assert found(a.then(b).within(5), *records) == [[great, great + 5]]
    assert found(a.then(b, within=6), *records) == [[great, great + 5], [great + 6, great + 12]]


def test_durations_beyond_floats() -> None:
    assert found(a.then(b).within(10**400), (1, "a"), (10**400 + 1, "b")) == [[1, 10**400 + 1]]
    with pytest.raises(OverflowError, match=r"1\.5 after 1000.* is out of range"):
        found(a.then(b).within(1.5), (10**400, "a"))


@pytest.mark.parametrize("nothing", [nan, Decimal("nan"), None])
def test_a_value_that_is_no_timestamp_is_refused(nothing: Any) -> None:
    pattern = a.then(b).within(5)
    with pytest.raises(ValueError, match="is not a timestamp; set another one for the record with value 'b'"):
        found(pattern, (1, "a"), (nothing, "b"))
    with pytest.raises(OperatorError, match=r"operator 'match' failed at key 'x', value 'b'.* is not a timestamp"):
        unordered(pattern, (1, "a"), (nothing, "b"))


def test_datetimes_with_and_without_a_zone_are_refused() -> None:
    records = (datetime(2026, 5, 1), "a"), (datetime(2026, 5, 1, tzinfo=UTC), "b")
    with pytest.raises(
        OperatorError, match=r"failed at key 'x', value 'b', .*can't compare offset-naive and offset-aware"
    ):
        unordered(a.then(b).within(HOUR), *records)
    with pytest.raises(TypeError, match="offset-naive and offset-aware"):
        found(a.then(b), *records)


def test_datetimes_of_several_zones_are_instants() -> None:
    paris = timezone(timedelta(hours=2))
    records = (datetime(2026, 5, 1, 12, 0, tzinfo=paris), "a"), (datetime(2026, 5, 1, 10, 59, tzinfo=UTC), "b")
    assert len(found(a.then(b).within(HOUR), *records)) == 1
    assert len(unordered(a.then(b).within(HOUR), *records)) == 1
    assert not found(a.then(b).within(HOUR / 2), *records)


def scaled(tree: Tree, unit: Any) -> Tree:
    """Return a tree whose durations are multiples of a unit."""
    match tree:
        case Then(left=left, right=right):
            within = None if tree.within is None else tree.within * unit
            return replace(tree, left=scaled(left, unit), right=scaled(right, unit), within=within)
        case Times(item=item):
            within = None if tree.within is None else tree.within * unit
            return replace(tree, item=scaled(item, unit), within=within)
        case Either(left=left, right=right):
            return Either(scaled(left, unit), scaled(right, unit))
        case Silence(item=item, during=during):
            return replace(tree, item=scaled(item, unit), during=None if during is None else during * unit)
        case _:
            return tree


@seldom
@given(
    spec=specs(),
    after=afters,
    events=histories(10),
    origin_and_unit=st.sampled_from(
        [(FIRST, HOUR), (Decimal("0.1"), Decimal("0.1")), (Fraction(1, 3), Fraction(1, 3)), (-HOUR, HOUR), (-9.5, 0.25)]
    ),
)
def test_times_of_other_types_give_the_same_matches(
    spec: Spec, after: Any, events: History, origin_and_unit: tuple[Any, Any]
) -> None:
    origin, unit = origin_and_unit
    absence = None if spec.absent is None else (spec.absent[0], spec.absent[1] * unit)
    other = Spec(scaled(spec.tree, unit), None if spec.within is None else spec.within * unit, absence)
    whole = built(spec).find([DataMessage("x", value, at) for at, value in events], after=after)
    found = built(other).find([DataMessage("x", value, origin + at * unit) for at, value in events], after=after)

    def rows(matches: Any, at: Callable[[Any], Any]) -> list[Any]:
        return [(at(it.end), [(one.step, one.value, at(one.timestamp)) for one in it.events]) for it in matches]

    for one, two in ((whole, found), (whole.timeouts, found.timeouts)):
        assert rows(one, lambda time: origin + time * unit) == rows(two, lambda time: time)
