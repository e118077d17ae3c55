"""Accumulators survive any schedule of snapshots, crashes and rescales, floats to the last bit."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing import assert_exactly_once
from malflow.windows import sliding
from tests.aggregators.cases import CASES

pytestmark = pytest.mark.slow

READINGS: list[dict[str, Any]] = [
    {"k": "ab"[n % 3 % 2], "t": n // 2 + n % 3, "i": n % 5 - 2, "f": (n * 13 % 17) / 7, "s": "abc"[n % 3]}
    for n in range(24)
]
EVERYTHING = agg.tuple_(*[it.aggregator for it in CASES])


@pytest.mark.parametrize("windowed", [False, True], ids=["running", "sliding"])
def test_results_are_those_of_a_run_without_interruptions(windowed: bool) -> None:
    def build_dataflow(provider: Any) -> None:
        stamped = (
            provider.new_stream()
            .source("readings", SingleIteratorSource([]))
            .assign_timestamps("at", lambda msg: msg.value["t"])
        )
        on_time, _ = stamped.generate_epochs("epochs", limit_out_of_orderness(3))
        by_key = on_time.key_distribute("k", lambda msg: msg.value["k"])
        keyed = by_key.window(sliding(6, 2)) if windowed else by_key
        keyed.aggregate("everything", EVERYTHING).sink("results", VecSink())

    assert_exactly_once(build_dataflow, READINGS, max_examples=20)
