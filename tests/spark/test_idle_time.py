"""Epochs of workers that have finished or are silent, on a simulated Spark: as in one thread."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import agg, limit_out_of_orderness
from malflow.engine import ticks
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import NoPersistence
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource
from malflow.windows import Timing, tumbling
from tests.kit.driving import Store, compiled, finish
from tests.kit.ticking import PARTS, Polls, Step, SteppingClock, scripts
from tests.spark.simulation import Cluster, Plan, settings_at, simulated

pytestmark = pytest.mark.slow

pytest.importorskip("pyspark")

SHORT, LONG = "short", "long"
APART = 2
"""The number of workers: each has a part."""


def test_windows_close_after_one_worker_has_finished(tmp_path: Path) -> None:
    script = {SHORT: [1, PAUSE, 2], LONG: [item for at in range(60) for item in (at, PAUSE)]}
    results: VecSink[Any, Any, Any] = VecSink()
    results_at: list[tuple[int, int]] = []

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", StatefulSource(ScriptedSource(script)))
        on_time, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        keyed = on_time.key_distribute("all", lambda msg: "all")
        keyed.window(tumbling(10)).aggregate("counts", agg.count()).sink("results", StatelessSink(results))

    def note(_spec: Any, coordinator: Any) -> None:
        results_at.append((coordinator.tick, len(results.values)))

    with simulated():
        Cluster([], after_tick=note).run(compiled(build), settings_at(str(tmp_path), NoPersistence()), APART)
    assert [it.value.timing for it in results] == [Timing.FINAL] * 6
    assert max(tick for tick, count in results_at if count == 0) < 30


plans = st.builds(
    Plan,
    places=st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple),
    again=st.frozensets(st.integers(0, 5), max_size=3),
    killed=st.none() | st.integers(0, 2),
)


@given(
    script=scripts(),
    bound=st.integers(0, 10),
    idle_after=st.integers(1, 20),
    per_part=st.booleans(),
    behind=st.booleans(),
    workers=st.integers(1, 3),
    faults=st.lists(plans, max_size=20),
)
def test_idle_time_is_the_same_as_in_one_thread(
    script: list[Step], bound: int, idle_after: int, per_part: bool, behind: bool, workers: int, faults: list[Plan]
) -> None:
    """Also where tasks are repeated, in other processes; the generator may be after an exchange."""
    polls = {part: [step.stamps if step.part == at else () for step in script] for at, part in enumerate(PARTS)}
    per_part = per_part and not behind
    options: dict[str, Any] = {"idle_after": timedelta(seconds=idle_after), "second": 1, "per_part": per_part}
    found: list[list[Any]] = []

    def build(provider: Any) -> None:
        sinks: list[VecSink[Any, Any, Any]] = [VecSink(), VecSink(), VecSink()]
        found.append([sink.values for sink in sinks])
        stream = provider.new_stream().source("source", StatefulSource(Polls(polls)))
        if behind:
            stream = stream.key_distribute("part", lambda msg: msg.key)
        on_time, late = stream.generate_epochs("epochs", limit_out_of_orderness(bound), **options)
        keyed = on_time.key_distribute("all", lambda msg: "all")
        counts = keyed.window(tumbling(10)).aggregate("counts", agg.count())
        for name, sent, sink in zip(("on time", "late", "results"), (on_time, late, counts), sinks, strict=True):
            sent.sink(name, StatelessSink(sink))

    gaps = [step.gap for step in script]
    with simulated(), TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(ticks, "RunClock", lambda: SteppingClock(gaps))
        Cluster(faults).run(compiled(build), settings_at(folder, NoPersistence()), workers)
    run = Store().restore(compiled(build), workers)
    run.ticks.clock = SteppingClock(gaps)
    finish(run)
    on_spark, in_one_thread = ([Counter(map(repr, values)) for values in sinks] for sinks in found)
    assert on_spark == in_one_thread
