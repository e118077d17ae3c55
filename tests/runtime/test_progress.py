"""The progress of a run."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import MAX, OperatorError, SingleThreadRuntime, StreamProvider, limit_out_of_orderness
from malflow.patterns import step
from malflow.runtime.progress.progress import Progress
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from malflow.testing import PAUSE, ScriptedSource, Timed


def build_dataflow(provider: StreamProvider) -> None:
    numbers = provider.new_stream().source("numbers", SingleIteratorSource([5, 3, 9, 8, 7, 1]))
    stamped = numbers.assign_timestamps("time", lambda msg: msg.value)
    on_time, late = stamped.generate_epochs("epochs", limit_out_of_orderness(2))
    on_time.generate_epochs("again", lambda msg, _: msg.value)[1].sink("late again", VecSink())
    late.filter("few", lambda value: value > 3).sink("late", VecSink())


def test_a_run_tells_how_many_records_were_late() -> None:
    runtime = SingleThreadRuntime(build_dataflow)
    assert runtime.progress == Progress(0, 1, {}, 0, None, 0)
    runtime.execute()
    progress = runtime.progress
    assert progress.late == {"epochs": 3, "again": 1}
    assert progress.lateness == {"epochs": 6, "again": 1}
    assert progress.records["numbers"] == 6
    assert progress.records["late"] == 1
    assert not any("\n" in name for name in progress.records)
    runtime.execute()
    assert runtime.progress.late == progress.late, "of the last run"


def test_progress_goes_on_while_records_flow(tmp_path: Path) -> None:
    seen: list[Progress] = []

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("numbers", ScriptedSource([1, PAUSE, 2, PAUSE, PAUSE, 3]))
        stream.inspect("look", lambda *_: seen.append(runtime.progress))
        stream.inspect("ask", lambda msg, _: runtime.rescale(2) if msg.value == 2 else runtime.snapshot())

    runtime = SingleThreadRuntime(build, FsspecBackend(str(tmp_path)))
    runtime.execute()
    assert [progress.parallelism for progress in seen] == [1, 1, 2]
    assert [progress.tick for progress in seen] == sorted({progress.tick for progress in seen})
    assert seen[0].snapshot is None
    assert runtime.progress.snapshot is not None
    assert runtime.progress.records == {"numbers": 3, "look": 3, "ask": 3}


@pytest.mark.parametrize("fails", [False, True])
def test_late_records_that_nothing_reads_are_told_once(caplog: pytest.LogCaptureFixture, fails: bool) -> None:
    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource([5, 3, 9, 1, 0]))  # at 0 to 4
        on_time, _ = numbers.map("copy", abs).generate_epochs("epochs", lambda msg, _: msg.value)
        on_time.generate_epochs("read", lambda msg, _: msg.value + 5)[1].sink("late", VecSink())
        numbers.generate_epochs("never late", lambda *_: None)
        if fails:
            numbers.map("fail", lambda value: 1 / value)

    runtime = SingleThreadRuntime(build)
    if fails:
        with pytest.raises(OperatorError):
            runtime.execute()
        assert not caplog.records
        return
    runtime.execute()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    told = "operator 'epochs' dropped 4 records as late, by up to 6: nothing reads its stream of late "
    assert record.message.startswith(told)


def test_progress_knows_nothing_of_what_was_not_built() -> None:
    def build(_: StreamProvider) -> Any:
        raise KeyError("not built")

    runtime = SingleThreadRuntime(build, parallelism=3)
    with pytest.raises(KeyError):
        runtime.execute()
    assert runtime.progress == Progress(0, 3, {}, 0, None, 0)


@pytest.mark.parametrize(
    ("times", "lateness"),
    [
        ([datetime(2024, 5, 1, 12), datetime(2024, 5, 1, 11), datetime(2024, 4, 1)], timedelta(days=30, hours=12)),
        ([2.5, 1.0, 2.0], 1.5),
        ([MAX, 5], None),
        (["b", "a"], None),
        ([(2, 1), (1, 1)], None),
        ([{1, 2}, {1}], None),
        ([1.0, float("-inf"), 0.5], float("inf")),
        ([float("inf"), float("inf"), 3.0], float("inf")),
        ([1, 2, 3], None),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_lateness_is_a_difference_of_times(times: Any, lateness: Any, debug: bool) -> None:
    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", SingleIteratorSource(times))
        stamped = stream.assign_timestamps("t", lambda msg: msg.value)
        stamped.generate_epochs("e", lambda msg, _: msg.timestamp)[1].sink("late", VecSink())

    runtime = SingleThreadRuntime(build, debug=debug)
    runtime.execute()
    assert runtime.progress.lateness == ({} if lateness is None else {"e": lateness})


@pytest.mark.parametrize(
    "generator", [lambda msg, _: msg.timestamp - 5, limit_out_of_orderness(5)], ids=["function", "bound"]
)
@pytest.mark.parametrize("every", [None, 10])
def test_lateness_counts_from_the_epoch_of_the_part(generator: Any, every: Any) -> None:
    script = {"behind": [20, 1, 40, 41], "ahead": [1000, 900, 1100, 953]}
    timed = {part: [Timed(at, at) for at in items] for part, items in script.items()}

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", ScriptedSource(timed))
        stream.generate_epochs("e", generator, every=every)[1].sink("late", VecSink())

    runtime = SingleThreadRuntime(build)
    runtime.execute()
    assert runtime.progress.late == {"e": 3}
    assert runtime.progress.lateness == {"e": 142 if every is None else 137}


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_greatest_lateness_of_all_ticks_and_workers_counts(parallelism: int) -> None:
    script = {part: [Timed(at, at) if at else PAUSE for at in (99, 0, 90 - part, 0, 95)] for part in range(6)}

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", ScriptedSource(script))
        stream.generate_epochs("e", lambda msg, _: msg.timestamp)[1].sink("late", VecSink())

    runtime = SingleThreadRuntime(build, parallelism=parallelism)
    runtime.execute()
    assert runtime.progress.late == {"e": 12}
    assert runtime.progress.lateness == {"e": 14}


def test_progress_has_the_partial_matches_that_there_are_now() -> None:
    seen: list[dict[str, int]] = []

    def build(provider: StreamProvider) -> None:
        values = [
            Timed("a", 1),
            Timed("a", 2),
            Timed("-", 3),
            PAUSE,
            Timed("b", 4),
            Timed("-", 5),
            PAUSE,
            Timed("-", 6),
        ]
        stream = provider.new_stream().source("values", ScriptedSource(values))
        on_time, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        on_time.inspect("look", lambda *_: seen.append(runtime.progress.patterns["match"]))
        a, b = (step(name, lambda value, name=name: value == name) for name in "ab")  # type: ignore[misc]
        on_time.key_distribute("all", lambda msg: 1).match("match", a.then(b)).matches.sink("sink", VecSink())

    runtime = SingleThreadRuntime(build)
    assert runtime.progress.patterns == {}
    runtime.execute()
    partials = [it["partials"] for it in seen]
    assert max(partials) == 1, "of two with one future the first is kept"
    assert runtime.progress.patterns["match"] == {
        **dict.fromkeys(("timeouts", "broken", "dropped", "late", "partials"), 0),
        "starts": 2,
        "matches": 1,
        "used_up": 1,
    }
