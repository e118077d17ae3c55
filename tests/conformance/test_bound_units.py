"""A bound in other units than its timestamps is warned of, once and by name, with the bound to write."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

NOW = 1_790_000_000
"""A time, in seconds since 1970."""


def warnings_of(runtime: Any, caplog: Any, stamps: list[Any], bound: Any) -> list[str]:
    """Run a dataflow over records of these timestamps; return the warnings about bounds."""

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(stamps))
        numbers.event_time("times", lambda msg: msg.value, out_of_orderness=bound).sink("out", VecSink())

    caplog.set_level(logging.WARNING, "malflow.runtime")
    runtime(build).execute()
    return [it.getMessage() for it in caplog.records if "does not seem to" in it.getMessage()]


def test_a_bound_in_seconds_for_milliseconds(runtime: Any, caplog: pytest.LogCaptureFixture) -> None:
    stamps = [NOW * 1000 + it for it in (0, 100, -3000, 4000, 1000, 6000, 2500)]
    (told,) = warnings_of(runtime, caplog, stamps, 5)
    assert told.startswith("records are late at operator 'times', by up to 3")
    assert "fit milliseconds, but the bound of 5 (" in told
    assert "test_bound_units.py:" in told
    assert told.endswith("does not seem to: in this unit, write 5000.")


@pytest.mark.parametrize(
    ("stamps", "bound"),
    [
        ([NOW, NOW + 100, NOW], 5),  # they fit seconds
        ([NOW * 1000, NOW * 1000 + 7, NOW * 1000 + 3], 5),  # no record is late
        ([NOW * 1000, NOW * 1000 + 100_000, NOW * 1000], 5),  # by more than a thousand times the bound
        ([0, 9_000, 3], 5),  # they are no times
        ([NOW * 1000, NOW * 1000 + 1, NOW * 1000], 0),
        ([NOW * 1000, NOW * 1000 + 90_000, NOW * 1000], 5_000),  # whole seconds, as INTERVAL '5' SECOND is
    ],
)
def test_bounds_that_may_be_meant(caplog: pytest.LogCaptureFixture, stamps: list[Any], bound: Any) -> None:
    assert warnings_of(SingleThreadRuntime, caplog, stamps, bound) == []
