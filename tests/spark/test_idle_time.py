"""Epochs of workers that have finished or are silent, on a simulated Spark: as in one thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from malflow import agg, limit_out_of_orderness
from malflow.partitioners import rendezvous_select
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import NoPersistence
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource
from malflow.windows import Timing, tumbling
from tests.kit.driving import compiled
from tests.spark.simulation import Cluster, settings_at, simulated

pytest.importorskip("pyspark")

SHORT, LONG = "short", "long"
APART = next(n for n in range(2, 9) if rendezvous_select(SHORT, range(n)) != rendezvous_select(LONG, range(n)))


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
