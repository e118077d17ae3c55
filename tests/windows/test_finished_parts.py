"""A worker whose parts of a source have finished does not hold back the others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, agg, limit_out_of_orderness
from malflow.engine.idle_epochs import Member, lifts_of
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource, Timed
from malflow.windows import Timing, tumbling

SHORT, LONG = "short", "long"


def counted(source: ScriptedSource, late: VecSink[Any, Any, Any], results: VecSink[Any, Any, Any]) -> Any:
    """Return a dataflow that counts in windows of 10, after an exchange."""

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", StatefulSource(source))
        on_time, too_late = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        too_late.sink("late", late)
        keyed = on_time.key_distribute("all", lambda msg: "all")
        keyed.window(tumbling(10)).aggregate("counts", agg.count()).sink("results", results)

    return build


def records(*timestamps: int) -> list[Any]:
    return [item for at in timestamps for item in (Timed(at, at), PAUSE)]


def test_records_that_a_lift_has_passed_are_late(tmp_path: Path) -> None:
    script = {SHORT: [*records(1, 2), END, *records(5, 70)], LONG: [*records(*range(1, 40)), END, *records(60)]}
    source = ScriptedSource(script)
    late: VecSink[Any, Any, Any] = VecSink()
    results: VecSink[Any, Any, Any] = VecSink()
    for _ in range(2):
        backend = FsspecBackend(str(tmp_path))
        SingleThreadRuntime(counted(source, late, results), backend, parallelism=2).execute()
    assert [it.value for it in late] == [5]
    final = Counter(it.value.start for it in results if it.value.timing is Timing.FINAL)
    assert final[0] == 1, "no window comes twice"


@given(st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 5)), st.booleans()), max_size=5))
def test_lifts_are_the_least_epoch_of_the_workers_that_go_on(workers: list[tuple[Any, bool]]) -> None:
    lifts = lifts_of([Member("epochs", *worker) for worker in workers], None)
    going = [epoch for epoch, finished in workers if not finished]
    behind = [epoch for epoch, finished in workers if finished]
    if not going or None in going or all(epoch is not None and epoch >= min(going) for epoch in behind):
        assert lifts == {}
    else:
        assert lifts == {"epochs": min(going)}
