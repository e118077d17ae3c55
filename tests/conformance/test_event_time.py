"""Event time in one step, compared with the two steps that it replaces."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, OperatorError, SingleThreadRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import PAUSE, ScriptedSource, Timed, assert_exactly_once
from malflow.windows import tumbling
from tests.conformance.dataflow import sis

READINGS = [{"at": at, "n": n} for n, at in enumerate([1, 4, 3, 7, 5, 11, 6, 10, 13])]
"""Of which the one at 6 is late by a bound of 3."""

BACKLOG = {
    part: [Timed({"part": part, "at": start + at}, 0) for at in range(200)] for part, start in (("a", 0), ("b", 1000))
}
"""Two parts in order, of which one is far ahead of the other."""

Step = Callable[[Any], tuple[Any, Any]]


def in_one_step(assigner: Any, **options: Any) -> Step:
    def add(stream: Any) -> tuple[Any, Any]:
        timed = stream.event_time("times", assigner, out_of_orderness=3, **options)
        return timed, timed.late

    return add


def in_two_steps(assigner: Any, **options: Any) -> Step:
    def add(stream: Any) -> tuple[Any, Any]:
        return tuple(
            stream.assign_timestamps("at", assigner).generate_epochs("times", limit_out_of_orderness(3), **options)
        )

    return add


def flow(source: Any, step: Step, sinks: list[Any]) -> Callable[[StreamProvider], None]:
    """Return a dataflow with windows of ten, and the late records."""

    def build(provider: StreamProvider) -> None:
        on_time, late = step(provider.new_stream().source("source", source))
        windows = on_time.key_distribute("key", lambda msg: 0).window(tumbling(10))
        windows.aggregate("windows", agg.collect("at")).sink("results", sinks[0])
        late.sink("late", sinks[1])

    return build


def found(runtime: Any, source: Any, step: Step) -> list[list[Any]]:
    sinks: list[Any] = [VecSink(), VecSink()]
    runtime(flow(source, step, sinks)).execute()
    results = [(it.value.start, sorted(it.value.value), it.value.timing) for it in sinks[0]]
    return [sorted(results), sorted((it.timestamp, it.value["at"]) for it in sinks[1])]


ASSIGNERS: dict[str, Any] = {"field": "at", "function": lambda msg: msg.value["at"]}


@pytest.mark.parametrize("assigner", ASSIGNERS)
@pytest.mark.parametrize("options", [{}, {"every": 2}, {"per_part": False}], ids=str)
def test_one_step_does_what_two_do(runtime: Any, assigner: str, options: dict[str, Any]) -> None:
    one, two = (
        found(runtime, sis(READINGS), step(ASSIGNERS[assigner], **options)) for step in (in_one_step, in_two_steps)
    )
    assert one == two
    assert one[0]
    assert options.get("every") or one[1] == [(6, 6)]


def test_parts_have_times_of_their_own(any_parallelism: Any) -> None:
    results, late = found(any_parallelism, ScriptedSource(BACKLOG), in_one_step("at"))
    assert late == []
    assert sum(len(values) for _, values, _ in results) == 400


def test_parts_may_have_one_time(runtime: Any) -> None:
    assert found(runtime, ScriptedSource(BACKLOG), in_one_step("at", per_part=False))[1] != []


def test_parts_that_were_mixed_are_refused() -> None:
    def step(stream: Any) -> tuple[Any, Any]:
        return in_one_step("at")(stream.key_local("key", "part"))

    with pytest.raises(GraphError, match=r"operator 'times' would have one time .* operator 'key' \[.*py:\d+\]"):
        found(SingleThreadRuntime, ScriptedSource(BACKLOG), step)


def test_a_stream_with_keys_keeps_them(runtime: Any) -> None:
    out: Any = VecSink()

    def build(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("source", sis(READINGS)).key_distribute("key", "n")
        timed = keyed.event_time("times", "at", out_of_orderness=3, per_part=False)
        timed.union(timed.late, name="all").map_with_key("pair", lambda key, it: (key, it["n"])).sink("sink", out)

    runtime(build).execute()
    assert sorted(out.values) == [(n, n) for n in range(9)]


def test_time_goes_on_without_input() -> None:
    sinks: list[Any] = [VecSink(), VecSink()]
    script = [Timed({"at": 1}, 0), PAUSE(100), PAUSE(100)]
    step = in_one_step("at", idle_after=timedelta(seconds=60), second=1)
    seen: list[Any] = []

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", ScriptedSource(script))
        step(stream)[0].inspect_frontier("frontier", lambda epoch, _: seen.append(epoch)).sink("sink", sinks[0])

    assert_exactly_once(build, {"source": script}, max_examples=5)
    assert any(isinstance(epoch, int) and epoch > 20 for epoch in seen)


@pytest.mark.parametrize("first", [in_one_step, in_two_steps])
def test_one_step_and_two_go_on_from_the_same_epochs(tmp_path: Path, first: Any) -> None:
    """Their states are under one name, so that a program may take the other form."""
    then = in_two_steps if first is in_one_step else in_one_step
    items = [Timed(it, 0) for it in READINGS]
    sinks: list[Any] = [VecSink(), VecSink()]
    store = FsspecBackend(str(tmp_path))
    for step, script in ((first, items[:6]), (then, items)):
        build = flow(ScriptedSource(script), step("at"), sinks)
        SingleThreadRuntime(build, store, timedelta(seconds=60)).execute()
    assert [it.value["at"] for it in sinks[1]] == [6], "the epoch of the first run, 8, makes it late"


@pytest.mark.parametrize("bound", [0, 3])
@pytest.mark.slow
def test_results_are_exactly_once(bound: int) -> None:
    items = [Timed({"at": n * 7 % 23 + n}, 0) for n in range(20)]

    def build(provider: StreamProvider) -> None:
        timed = (
            provider.new_stream().source("source", ScriptedSource([])).event_time("times", "at", out_of_orderness=bound)
        )
        windows = timed.key_distribute("key", lambda msg: msg.value["at"] % 3).window(tumbling(5))
        late = windows.allow_late(until=10).aggregate("windows", agg.count())
        late.with_revisions().sink("results", VecSink())
        late.too_late.sink("too late", VecSink())

    assert_exactly_once(build, {"source": items}, max_examples=10)


def test_late_records_that_nobody_reads_are_told(caplog: pytest.LogCaptureFixture) -> None:
    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", sis(READINGS))
        stream.event_time("times", "at", out_of_orderness=3).sink("sink", VecSink())

    with caplog.at_level(logging.WARNING):
        SingleThreadRuntime(build).execute()
    assert "operator 'times' dropped 1 record as late, by up to 2" in caplog.text
    assert "send .late" in caplog.text


@pytest.mark.parametrize(
    ("assigner", "options", "why"),
    [
        (1.5, {"out_of_orderness": 3}, "assigner must be a plain function; got 1.5"),
        (lambda: 1, {"out_of_orderness": 3}, "takes other arguments"),
        ("at", {"out_of_orderness": -1}, "finite bound of zero or more; got -1"),
        ("at", {"out_of_orderness": "at"}, "a number or a timedelta, .*; got 'at'; the field of timestamps"),
        ("at", {"out_of_orderness": 3, "every": timedelta(1)}, "both must fit the timestamps"),
        ("at", {"out_of_orderness": 3, "every": 0}, "every must be"),
        ("at", {"out_of_orderness": 3, "per_part": 1}, "per_part must be True or False; got 1"),
        ("at", {"out_of_orderness": 3, "second": 1}, "second= without idle_after="),
    ],
)
def test_mistaken_arguments_are_refused(assigner: Any, options: Any, why: str) -> None:
    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", sis(READINGS))
        with pytest.raises(GraphError, match=f"operator 'times' .*{why}"):
            stream.event_time("times", assigner, **options)
        stream.event_time("times", "at", out_of_orderness=0).sink("sink", VecSink())

    SingleThreadRuntime(build).execute()


@pytest.mark.parametrize("step", [in_one_step, in_two_steps])
def test_a_field_that_is_missing_is_told_with_those_that_there_are(runtime: Any, step: Any) -> None:
    with pytest.raises(OperatorError, match=r"no item 'landed'; it has \['at', 'n'\]; pass a function of the message"):
        found(runtime, sis(READINGS), step("landed"))


def test_streams_behind_have_no_late_records_and_say_so() -> None:
    def build(provider: StreamProvider) -> None:
        timed = provider.new_stream().source("source", sis(READINGS)).event_time("times", "at", out_of_orderness=0)
        behind = timed.map("n", lambda it: it["n"])
        with pytest.raises(AttributeError, match=r"has no attribute 'late'; .* timed = stream\.event_time"):
            behind.late  # noqa: B018 - raises
        timed.late.sink("sink", VecSink())

    SingleThreadRuntime(build).execute()


def test_late_records_correct_their_windows(any_parallelism: Any) -> None:
    """The last row of a window counts all of its records, wherever its key is."""
    out: Any = VecSink()
    readings = [{"at": n * 17 % 60 + n // 10, "key": n % 3} for n in range(120)]

    def build(provider: StreamProvider) -> None:
        timed = provider.new_stream().source("source", sis(readings)).event_time("times", "at", out_of_orderness=2)
        windows = timed.key_distribute("key", "key").window(tumbling(10)).allow_late(until=1000)
        windows.aggregate("windows", agg.count()).with_revisions().sink("sink", out)

    any_parallelism(build).execute()
    rows = {(it.key, it.value.start): it.value.value for it in out}
    assert rows == Counter((it["key"], it["at"] // 10 * 10) for it in readings)
    assert len(out.values) > len(rows)
