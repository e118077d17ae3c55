"""Timestamps and epochs at the limits of their types, and windows of fractions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, OperatorError, SingleThreadRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.event_time.panes import fitted
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.windows import WindowResult, session, sliding, tumbling

KINDS: dict[str, Callable[[Any], Any]] = {
    "tumbling": tumbling,
    "sliding": lambda size: sliding(2 * size, size),
    "session": session,
}


def results_of(windows: Any, times: list[Any], generator: Any) -> list[WindowResult[int, Any]]:
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        stamped = (
            provider.new_stream().source("s", SingleIteratorSource(times)).assign_timestamps("t", lambda m: m.value)
        )
        on_time, _ = stamped.generate_epochs("epochs", generator)
        on_time.key_distribute("k", lambda msg: "a").window(windows).aggregate("counts", agg.count()).sink("out", out)

    SingleThreadRuntime(build).execute()
    return out.values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("time", [1e300, -1e300, float("inf")])
def test_floats_beyond_the_precision_of_windows_are_refused(kind: str, time: float) -> None:
    with pytest.raises(
        OperatorError, match=r"operator 'counts' failed at key 'a', value \S+, timestamp \S+: .*; filter"
    ):
        results_of(KINDS[kind](10), [5.0, time], lambda msg, epoch: None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zone", [None, UTC])
def test_the_last_datetime_is_named(kind: str, zone: Any) -> None:
    time = datetime.max.replace(tzinfo=zone)
    with pytest.raises(OperatorError, match=r"operator 'counts' failed at key 'a', value .*9999, 12, 31"):
        results_of(KINDS[kind](timedelta(hours=1)), [time], limit_out_of_orderness(timedelta(0)))


@pytest.mark.parametrize("kind", ["tumbling", "sliding"])
@pytest.mark.parametrize("epoch", [float("inf"), 1e300])
def test_an_epoch_that_no_window_contains_is_named(kind: str, epoch: float) -> None:
    with pytest.raises(OperatorError, match=r"operator 'counts' failed at epoch (inf|1e\+300): "):
        results_of(KINDS[kind](10), [1.0, 2.0], lambda msg, _: epoch)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epoch", ["text", datetime(2020, 1, 1)])
def test_an_epoch_of_another_type_is_named_where_it_is_made(kind: str, epoch: Any) -> None:
    with pytest.raises(
        OperatorError, match=r"operator 'epochs' failed at key NoKey, value 1, timestamp 1: .* one type"
    ):
        results_of(KINDS[kind](10), [1, 2], lambda msg, _: epoch)


@given(time=st.floats(-1e12, 1e12), size=st.floats(1e-3, 1e6))
def test_a_float_is_in_its_pane(time: float, size: float) -> None:
    panes = fitted(tumbling(size).panes, 0.0)
    number = panes.number(time)
    assert panes.start(number) <= time < panes.start(number + 1)


@pytest.mark.parametrize(
    ("size", "every", "span", "step"),
    [(1.0, 0.5, 2, 1), (1.0, 1.0, 1, 1), (2, 1.0, 2, 1), (0.3, 0.1, 3, 1), (1.5, 1, 3, 2), (0.5, 0.75, 2, 3)],
)
def test_sliding_windows_of_fractions(size: float, every: float, span: int, step: int) -> None:
    windows = sliding(size, every)
    assert (windows.span, windows.step) == (span, step)
    times = [n / 8 for n in range(40)]
    results = results_of(windows, times, limit_out_of_orderness(0))
    assert all(result.value == sum(result.start <= time < result.end for time in times) for result in results), (
        "a window has other records than those within its bounds"
    )


def test_a_number_and_a_timedelta_have_no_common_unit() -> None:
    with pytest.raises(GraphError, match="have no common unit; use two numbers or two timedeltas"):
        sliding(timedelta(1), 0.5)
