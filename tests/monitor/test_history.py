"""Rates, compared with a naive model, and samples that are forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.monitor.recent_past import History, Rates
from malflow.runtime.progress.progress import OperatorProgress, Progress

PLAIN = Progress(0, 1, {}, 0, None, 0)


def at(taken: int, given_: tuple[int, ...] = (), restarts: int = 0) -> Progress:
    """Return the progress of a source with so many records."""
    lines = OperatorProgress(taken, given_, kind="source", busy=taken / 1000)
    operators = {"other": OperatorProgress(7, (7,)), "lines": lines}
    return replace(PLAIN, operators=operators, restarts=restarts)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=40))
def test_rates_are_those_of_the_last_five_seconds(steps: list[tuple[int, int, int]]) -> None:
    history = History()
    points: list[tuple[float, int, int]] = []
    for tenths, more, out in steps:
        last = points[-1] if points else (0.0, 0, 0)
        points.append((last[0] + tenths / 8, last[1] + more, last[2] + out))
        history.add(at(points[-1][1], (points[-1][2],)), points[-1][0])
    now = points[-1]
    within = [it for it in points if now[0] - it[0] <= 5.0]
    rates = history.rates
    if len(within) == 1:
        assert rates.of("lines") == (None, None)
        return
    passed = now[0] - within[0][0]
    taken, given_ = rates.of("lines")
    assert taken == pytest.approx((now[1] - within[0][1]) / passed)
    assert given_ is not None
    assert given_ == pytest.approx([(now[2] - within[0][2]) / passed])
    assert rates.polled == taken
    assert rates.of("other") == (0.0, [0.0])
    assert rates.busy == pytest.approx({"other": 0.0, "lines": (now[1] - within[0][1]) / passed / 1000})


def test_a_restart_begins_at_zero_and_is_not_a_negative_rate() -> None:
    history = History()
    for second, progress in enumerate([at(0), at(100), at(3, restarts=1), at(5, restarts=1)]):
        history.add(progress, second)
    assert history.rates.polled == 2.0
    assert len(history.samples) == 2


def test_little_is_kept_and_an_empty_history_is_unknown() -> None:
    history = History()
    assert history.rates == Rates()
    for second in range(2000):
        history.add(at(second), second)
    assert len(history.samples) == 600
    assert history.rates.polled == 1.0
