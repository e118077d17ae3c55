"""Epochs generated from a column of timestamps equal those generated record by record, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from malflow import StreamProvider, limit_out_of_orderness
from malflow.operators.epochs.rounding import Thinning, calm_until, rounded_down
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource, Timed
from tests.kit.driving import finish, run_of

pytestmark = pytest.mark.slow

START = datetime(2024, 5, 1, 12, tzinfo=UTC)
ZONES = [UTC, timezone(timedelta(hours=5, minutes=30))]
SMALL = st.integers(-40, 60)


def moments(ticks: st.SearchStrategy[int]) -> st.SearchStrategy[datetime]:
    return st.builds(
        lambda tick, zone: (START + timedelta(milliseconds=tick)).astimezone(zone), ticks, st.sampled_from(ZONES)
    )


def spans(ticks: st.SearchStrategy[int]) -> st.SearchStrategy[timedelta]:
    return ticks.map(lambda tick: timedelta(milliseconds=tick))


halves = SMALL.map(lambda number: number / 10)
uneven = st.floats(-1e6, 1e6, allow_subnormal=True)
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "integers": (SMALL, st.integers(0, 9), st.integers(1, 12)),
    "large integers": (st.integers(2**60, 2**60 + 90), st.integers(0, 9), st.integers(1, 12)),
    "nanoseconds": (st.integers(2**60, 2**60 + 9000), st.floats(0, 900), st.floats(1, 900)),
    "tenths": (halves, st.sampled_from([0.0, 0.1, 0.3, 1.0]), st.sampled_from([0.1, 0.3, 0.7, 1.0])),
    "floats": (uneven, st.floats(0, 1e3), st.floats(1e-3, 1e3)),
    "infinite": (st.one_of(halves, st.sampled_from([math.inf, -math.inf])), st.just(0.5), st.just(0.25)),
    "integers and floats": (st.one_of(SMALL, halves), st.sampled_from([0, 1, 0.3]), st.sampled_from([1, 3, 0.7])),
    "large and mixed": (
        st.one_of(st.integers(2**53, 2**53 + 50), st.integers(2**53, 2**53 + 50).map(float)),
        st.integers(0, 3),
        st.integers(1, 5),
    ),
    "datetimes": (moments(SMALL), spans(st.integers(0, 9)), spans(st.integers(1, 12))),
    "the last datetimes": (
        SMALL.map(lambda tick: datetime.max.replace(tzinfo=UTC) - timedelta(milliseconds=tick + 40)),
        spans(st.integers(0, 9)),
        spans(st.integers(1, 90)),
    ),
    "dates": (
        moments(SMALL.map(lambda day: day * 10**8)).map(datetime.date),
        spans(st.just(0)),
        spans(st.just(3 * 10**8)),
    ),
    "decimals": (
        SMALL.map(lambda n: Decimal(n) / 10),
        st.just(Decimal("0.3")),
        st.sampled_from([Decimal("0.7"), Decimal(1)]),
    ),
    "numbers of any kind": (
        st.one_of(SMALL, halves, SMALL.map(lambda number: Decimal(number) / 10)),
        st.integers(0, 3),
        st.integers(1, 5),
    ),
    "fractions": (
        SMALL.map(lambda n: Fraction(n, 7)),
        st.just(Fraction(1, 3)),
        st.sampled_from([Fraction(1, 2), Fraction(3)]),
    ),
}


each_kind = pytest.mark.parametrize("kind", sorted(KINDS))


@st.composite
def cases(draw: Any, kind: str) -> tuple[dict[str, list[Any]], Any, Any]:
    timestamps, bounds, steps = KINDS[kind]
    scripts = st.lists(st.one_of(*[timestamps] * 5, st.just(PAUSE)), max_size=25)
    parts = draw(st.dictionaries(st.sampled_from("abc"), scripts, min_size=1))
    return parts, draw(bounds), draw(st.one_of(st.none(), steps))


class Seen:
    """Notes everything of a stream in its order."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def on_data(self, msg: Any, output: Any) -> None:
        self.rows.append((msg.key, msg.value, repr(msg.timestamp)))

    def on_epoch(self, epoch: Any, output: Any) -> None:
        self.rows.append(repr(epoch))


def seen_of(
    parts: Any, *generators: Callable[..., Any], every: Any, per_part: bool, behind: int | None = None
) -> list[tuple[list[Any], ...]]:
    """Return what each generator makes of one stream: its records on time, the late ones, and the epochs of both.

    Args:
        parts: the timestamps of each part.
        generators: the generators.
        every: their step.
        per_part: whether each part has its epoch.
        behind: which stream of another generator is theirs: 0 for the one on time, 1 for the late one.
    """
    seen = [(Seen(), Seen()) for _ in generators]
    script = {
        part: [item if item is PAUSE else Timed((part, at), item) for at, item in enumerate(items)]
        for part, items in parts.items()
    }

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", StatefulSource(ScriptedSource(script)))
        if behind is not None:
            stream = stream.generate_epochs("first", lambda msg, _: msg.timestamp, per_part=False)[behind]
        for number, generator in enumerate(generators):
            streams = stream.generate_epochs(f"epochs {number}", generator, every=every, per_part=per_part)
            for name, one, noted in zip(("on time", "late"), streams, seen[number], strict=True):
                one.stateless_op(f"{name} {number}", noted)

    finish(run_of(build))
    return [tuple(noted.rows for noted in pair) for pair in seen]


@each_kind
@given(data=st.data(), per_part=st.booleans(), behind=st.sampled_from([None, None, 0, 1]))
def test_a_column_gives_the_epochs_of_its_records(kind: str, data: Any, per_part: bool, behind: int | None) -> None:
    parts, bound, every = data.draw(cases(kind))
    by_column, by_record = seen_of(
        parts,
        limit_out_of_orderness(bound),
        lambda msg, _: msg.timestamp - bound,
        every=every,
        per_part=per_part,
        behind=behind,
    )
    assert by_column == by_record
    some_late = any(isinstance(row, tuple) for row in by_record[1])
    event("some late" if some_late else "none late")


def paced(behind: list[int | None], start: int) -> list[Any]:
    """Return timestamps that ascend by three, less how much each is behind; None is a pause."""
    return [PAUSE if less is None else start + 3 * at - less for at, less in enumerate(behind)]


lags = st.lists(st.one_of(*[st.integers(0, 6)] * 6, st.integers(7, 40), st.none()), min_size=20, max_size=60)


@given(
    parts=st.dictionaries(
        st.sampled_from("abc"), st.builds(paced, lags, st.sampled_from([0, 0, 8, 20, 90])), min_size=2
    ),
    bound=st.integers(0, 9),
    every=st.integers(5, 40),
)
def test_parts_that_keep_pace_have_the_epochs_of_their_records(parts: Any, bound: int, every: int) -> None:
    generators = limit_out_of_orderness(bound), lambda msg, _: msg.timestamp - bound
    by_column, by_record = seen_of(parts, *generators, every=every, per_part=True)
    assert by_column == by_record


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"dates", "decimals", "fractions", "numbers of any kind"}))
@given(data=st.data())
def test_no_record_up_to_the_calm_time_moves_the_epoch(kind: str, data: Any) -> None:
    timestamps, bounds, steps = KINDS[kind]
    bound, every = data.draw(bounds), data.draw(steps)
    epoch = rounded_down(data.draw(timestamps) - bound, every)
    until = calm_until(epoch, bound, every)
    around = [until]
    if isinstance(until, float):
        for end in (-math.inf, math.inf):
            near = until
            around += [near := math.nextafter(near, end) for _ in range(40)]
    for moment in around:
        if moment <= until:
            assert not rounded_down(moment - bound, every) > epoch


@each_kind
@given(data=st.data())
def test_rounding_does_not_depend_on_epochs_before(kind: str, data: Any) -> None:
    timestamps, _, steps = KINDS[kind]
    every = data.draw(steps)
    epochs = data.draw(st.lists(timestamps, max_size=8))
    thin = Thinning(every)
    assert [repr(thin(epoch)) for epoch in epochs] == [repr(rounded_down(epoch, every)) for epoch in epochs]


def test_a_negative_zero_rounds_to_zero() -> None:
    assert repr(rounded_down(-0.0, 1.0)) == "0.0"
    thin = Thinning(2.0)
    assert [repr(thin(epoch)) for epoch in (-0.0, 0.0, -0.0)] == ["0.0"] * 3


def test_a_float_may_give_a_lesser_epoch_than_an_integer_before_it() -> None:
    times = [2**60 + 200, float(2**60 + 256), 2**60 + 210]  # less 150, the second is rounded to 2**60
    (epochs, _), by_record = seen_of(
        {"a": times}, limit_out_of_orderness(150), lambda msg, _: msg.timestamp - 150, every=None, per_part=False
    )
    assert [row for row in epochs if isinstance(row, str)] == [str(2**60 + 50), str(2**60 + 60), "MAX"]
    assert epochs == by_record[0]


@pytest.mark.parametrize("kind", ["integers", "large integers", "datetimes"])
@given(data=st.data())
def test_the_record_after_the_calm_time_moves_the_epoch(kind: str, data: Any) -> None:
    timestamps, bounds, steps = KINDS[kind]
    bound, every = data.draw(bounds), data.draw(steps)
    epoch = rounded_down(data.draw(timestamps) - bound, every)
    tick: Any = datetime.resolution if kind == "datetimes" else 1
    after = calm_until(epoch, bound, every) + tick
    if kind == "large integers":
        after += 2**60 >> 48  # numbers that floats would round
    assert rounded_down(after - bound, every) > epoch


@given(
    parts=st.fixed_dictionaries({"a": st.lists(st.integers(-40, 60))}),
    bound=st.integers(0, 9),
    every=st.integers(1, 12),
)
def test_a_list_of_all_records_says_what_is_late(parts: Any, bound: int, every: int) -> None:
    expected: tuple[list[Any], list[Any]] = ([], [])
    epoch: int | None = None
    for at, timestamp in enumerate(parts["a"]):
        late = epoch is not None and timestamp <= epoch
        expected[late].append(("a", ("a", at), repr(timestamp)))
        multiple = math.floor(Fraction(max(parts["a"][: at + 1]) - bound, every)) * every
        if epoch is None or multiple > epoch:
            epoch = multiple
            for rows in expected:
                rows.append(repr(epoch))
    for rows in expected:
        rows.append("MAX")
    for per_part in (False, True):
        assert seen_of(parts, limit_out_of_orderness(bound), every=every, per_part=per_part) == [expected]
