"""Explanations of missing results: the operators that wait, and the sources for which they wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import (
    DataMessage,
    OperatorError,
    SingleThreadRuntime,
    StatefulLogic,
    TimeTable,
    agg,
    limit_out_of_orderness,
)
from malflow.runtime.progress.progress import written_of
from malflow.runtime.progress.time_table import TimeRow, explain
from malflow.runtime.requests.answers import ExplainRequest
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.why.time_watch import TimeExplainer, TimeWatch
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import NoPersistence
from malflow.sources import SingleIteratorSource, StatefulSource
from malflow.sources.contract import StatefulSourceImpl
from malflow.testing import PAUSE, ScriptedSource, Timed
from malflow.windows import TimeWindows, session, sliding, tumbling
from tests.kit.driving import Store, compiled
from tests.kit.ticking import HandClock, Polls

LOG = "malflow.runtime"


def hourly(source: Any, **options: Any) -> Callable[[Any], None]:
    """Return a dataflow of windows of 60, after an exchange."""

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("flights", source)
        on_time, _ = stream.generate_epochs("epochs", limit_out_of_orderness(1), **options)
        keyed = on_time.key_distribute("all", lambda msg: "all")
        keyed.window(tumbling(60)).aggregate("hourly", agg.count()).sink("results", StatelessSink(VecSink()))

    return build


def rows_of(build: Any, gaps: Sequence[int], workers: int = 1) -> dict[str, TimeRow]:
    """Return the rows after ticks with given times between."""
    program, clock, now = compiled(build), HandClock(), 0
    run = Store().restore(program, workers)
    for gap in gaps:
        now += gap
        clock.set(now)
        run.ticks.clock = clock
        run.tick()
    rows = explain(program, run.explain(), run.ticks.heard, clock.now)
    run.close()
    return {row.operator: row for row in rows}


SCRIPT = {"a.csv": [[10], [70], [130], [190], [250]], "b.csv": [[5], [125], [], [], []]}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_window_waits_for_the_part_that_is_behind(workers: int) -> None:
    (row,) = rows_of(hourly(StatefulSource(Polls(SCRIPT))), [0, 20, 20, 20], workers).values()
    assert row == TimeRow(
        operator="hourly",
        worker=row.worker,
        what="windows",
        open=2,
        frontier=124,
        until=179,
        generator="epochs",
        source="flights",
        part="b.csv",
        epoch=124,
        silence=timedelta(seconds=40),
    )
    assert str(row) == (
        "operator 'hourly' has 2 windows open and waits for 179; its time is 124.\n"
        "  it is held back by source 'flights', part 'b.csv', which has emitted nothing for 40 s "
        "(its epoch is 124, at 'epochs')\n"
        "  to continue without it, pass idle_after= to operator 'epochs'"
    )


def test_a_part_without_an_epoch_holds_windows_back() -> None:
    (row,) = rows_of(hourly(StatefulSource(Polls({"a": [[1], [2], [3]], "b": [[], [], []]}))), [0, 60]).values()
    assert (row.frontier, row.part, row.epoch, row.silence) == (None, "b", None, None)
    assert "has 1 window open and waits for 59; it has had no epoch yet." in str(row)
    assert "part 'b' (no epoch yet, at 'epochs')" in str(row)


def test_advice_is_left_out_where_it_was_taken() -> None:
    options = {"idle_after": timedelta(hours=1), "per_part": False}
    (row,) = rows_of(hourly(StatefulSource(Polls(SCRIPT)), **options), [0, 20, 20, 20]).values()
    assert row.advances
    assert row.goes_on
    assert "idle_after" not in str(row)
    assert (row.part, row.epoch) == (None, 189)


class Waking(StatefulLogic[Any, Any, Any, Any, Any]):
    """Sets a timer a hundred units behind each record."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        output.wake(msg.timestamp + 100)
        return 1

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> None:
        output.send(DataMessage(key, at, at))


Build = Callable[[Any, Any], Any]
WAITING: Mapping[str, tuple[Build, tuple[str, int, Any]]] = {
    "tumbling": (lambda it, _: it.window(tumbling(50)).aggregate("w", agg.count()), ("windows", 2, 149)),
    "sliding": (lambda it, _: it.window(sliding(50, 10)).aggregate("w", agg.count()), ("panes of windows", 3, 119)),
    "session": (lambda it, _: it.window(session(30)).aggregate("w", agg.count()), ("keys with sessions", 2, None)),
    "timers": (lambda it, _: it.stateful_op("w", Waking()), ("timers", 2, 220)),
    "sort": (lambda it, _: it.sort("w"), ("records", 2, 120)),
    "batch": (lambda it, _: it.batch("w", 10, within=40), ("lists", 2, 150)),
    "interval join": (
        lambda it, other: it.interval_join("w", other, before=9, after=9),
        ("entries", 5, None),
    ),
    "as-of join": (lambda it, other: it.asof_join("w", other), ("entries", 4, None)),
    "cogroup": (lambda it, other: it.window(tumbling(50)).cogroup("w", other), ("windows", 2, 149)),
}


@pytest.mark.parametrize("kind", WAITING)
def test_each_operator_of_event_time_tells_what_it_keeps(kind: str) -> None:
    add, expected = WAITING[kind]

    def build(provider: Any) -> None:
        def timed(name: str) -> Any:
            source = StatefulSource(Polls({"a": [[110], [120], [170], []]}, keyed=False))
            stamped = provider.new_stream().source(name, source)
            on_time, _ = stamped.generate_epochs(f"{name} epochs", limit_out_of_orderness(55))
            return on_time.key_distribute(f"{name} keys", lambda msg: msg.timestamp // 50)

        add(timed("left"), timed("right"))

    (row,) = rows_of(build, [0, 1, 1]).values()
    assert (row.what, row.open, row.until) == expected
    assert row.frontier == 115


class Endless(StatefulSourceImpl[Any, Any, Any, int]):
    """Emits two records, and ends when it is told to."""

    def __init__(self, ended: threading.Event) -> None:
        self.ended = ended

    def list_parts(self) -> list[Any]:
        return ["only"]

    def build_part(self, part: Any, state: int | None) -> Any:
        source, position = self, [state or 0]

        class Part:
            def poll_batch(self, _limit: int) -> tuple[list[Any], list[int]]:
                position[0] += 1
                return ([position[0]], [position[0]]) if position[0] < 3 else ([], [])

            def is_finished(self) -> bool:
                return source.ended.is_set()

            def snapshot(self) -> int:
                return position[0]

        return Part()


def test_a_run_is_explained_while_it_runs_and_afterwards() -> None:
    ended = threading.Event()
    runtime = SingleThreadRuntime(hourly(StatefulSource(Endless(ended))))
    assert str(runtime.explain_time()) == "no operator waits for an epoch.\nlate so far: no records"
    handle = runtime.start()
    while not (table := handle.explain_time()).rows or table.rows[0].frontier != 1:
        pass
    assert (table.rows[0].source, table.rows[0].generator) == ("flights", "epochs")
    assert runtime.explain_time().rows[0].frontier == 1
    assert handle.progress.unfinished == ("flights",)
    ended.set()
    assert handle.await_termination(30)
    assert runtime.progress.unfinished == ()
    (row,) = runtime.explain_time().rows
    assert (row.operator, row.open, row.frontier) == ("hourly", 1, 1)
    assert handle.explain_time().rows == (row,)


def test_a_generator_behind_held_records_is_told() -> None:
    ended = threading.Event()

    def build(provider: Any) -> None:
        first = provider.new_stream().source("file", ScriptedSource([Timed(1, 1), Timed(2, 2)]))
        timed = first.event_time("file times", lambda msg: msg.timestamp, out_of_orderness=0)
        counts = timed.key_distribute("file key", lambda msg: 0).window(tumbling(10)).aggregate("tens", agg.count())
        again = counts.event_time("again", lambda msg: msg.timestamp, out_of_orderness=0, per_part=False)
        live = provider.new_stream().source("live", StatefulSource(Endless(ended)))
        others = live.event_time("live times", lambda msg: msg.timestamp, out_of_orderness=0)
        both = again.map("one", lambda _: 1).union(others, name="both").key_distribute("key", lambda msg: 0)
        both.window(tumbling(2)).aggregate("pairs", agg.count()).sink("out", VecSink())

    handle = SingleThreadRuntime(build).start()
    while handle.progress.unfinished != ("live",) or "'pairs' has" not in (table := str(handle.explain_time())):
        pass
    ended.set()
    assert handle.await_termination(30)
    *_, reason, cure, _ = table.splitlines()
    assert reason == "  it is held back by operator 'again' (no epoch yet); all parts of its source have ended"
    assert cure == "  to continue without it, pass idle_after= to operator 'again'"


def test_late_records_are_part_of_it() -> None:
    runtime = SingleThreadRuntime(hourly(SingleIteratorSource([Timed(1, 1)])))
    runtime.execute()
    table = TimeTable(late={"epochs": 3, "others": 0}, lateness={"epochs": timedelta(hours=14)})
    assert str(table).endswith("late so far: 3 records at 'epochs', by at most 14:00:00")
    assert runtime.explain_time().late == {"epochs": 0}


def test_the_runs_own_thread_can_not_ask() -> None:
    def build(provider: Any) -> None:
        stream = provider.new_stream().source("s", SingleIteratorSource([1]))
        stream.inspect("ask", lambda _msg, _ctx: runtime.explain_time())

    runtime = SingleThreadRuntime(build)
    with pytest.raises(OperatorError, match="call it from another thread"):
        runtime.execute()


def warnings_of(caplog: pytest.LogCaptureFixture, script: Any, **options: Any) -> list[str]:
    with caplog.at_level(logging.WARNING, LOG):
        SingleThreadRuntime(hourly(StatefulSource(ScriptedSource(script)), **options)).execute()
    return [record.getMessage() for record in caplog.records if "no epoch and no output" in record.getMessage()]


@pytest.mark.slow
def test_a_run_that_waits_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = warnings_of(caplog, [Timed(1, 1), *[PAUSE(50)] * 8])
    assert warning.startswith("no epoch and no output for 60 s, while operators wait: operator 'hourly' has 1 window")
    assert "it is held back by source 'flights'" in warning


@pytest.mark.parametrize(
    "script",
    [
        [Timed(1, 1), PAUSE(50), PAUSE(50)],
        [item for at in range(40) for item in (Timed(at, at), PAUSE(20))],
        [*[PAUSE(50)] * 8],
    ],
    ids=["soon over", "epochs", "nothing open"],
)
@pytest.mark.slow
def test_a_run_that_goes_on_does_not_warn(caplog: pytest.LogCaptureFixture, script: Any) -> None:
    assert warnings_of(caplog, script) == []


def test_a_run_on_spark_is_explained_and_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pyspark")
    from tests.spark.simulation import Cluster, Plan, settings_at, simulated  # noqa: PLC0415 - needs pyspark

    script = {"a": [Timed(1, 1), Timed(70, 70), *[PAUSE(50)] * 9], "b": [Timed(5, 5), *[PAUSE(40)] * 9]}
    plans = [Plan(again=frozenset({2, 3}), places=(n % 2, 1)) for n in range(30)]
    cluster = Cluster(plans)
    with simulated(), caplog.at_level(logging.WARNING, LOG):
        build = hourly(StatefulSource(ScriptedSource(script)))
        cluster.run(compiled(build), settings_at(str(tmp_path), NoPersistence()), 2)
    (warning,) = [it.getMessage() for it in caplog.records if "no epoch and no output" in it.getMessage()]
    assert "held back by source 'flights', part 'b', which has emitted nothing for" in warning
    assert cluster.attempt is not None
    assert cluster.attempt.progress.unfinished == ()
    (row,) = cluster.requests.explained.rows
    assert (row.operator, row.what, row.open) == ("hourly", "windows", 1)


def test_a_watch_looks_once_a_minute() -> None:
    program, clock = compiled(hourly(SingleIteratorSource([]))), HandClock()
    watch, looked = TimeWatch({}), []
    for second in range(0, 300, 7):
        clock.set(second)
        if watch.is_due(clock.now):
            looked.append(second)
            watch.note(clock.now, (), written_of(program, {"results": second}))
    assert looked == [63, 126, 189, 252]


def test_request_that_comes_while_the_time_is_explained() -> None:
    program, requests = compiled(hourly(SingleIteratorSource([]))), RunRequests()
    run = Store().restore(program, 1)
    mailbox, late = requests.mailbox, ExplainRequest()

    class Slow:
        """A host that somebody asks while it looks."""

        def times(self) -> Any:
            if not mailbox.explanations.waiting:
                mailbox.post(late)
            return run.explain()

    host: Any = Slow()
    explainer, early = TimeExplainer(program, host, run.ticks, requests), ExplainRequest()
    mailbox.post(early)
    assert explainer.is_due
    explainer.explain()
    assert (early.answer.done(), late.answer.done(), explainer.is_due) == (True, False, True)
    explainer.explain()
    assert late.answer.result(0) is None
    run.close()


def test_a_rollup_tells_the_windows_of_all_units() -> None:
    start = datetime(2026, 1, 30, tzinfo=UTC)

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("s", StatefulSource(Polls({"a": [[0, 1], [2, 3], []]}, keyed=False)))
        stamped = stream.assign_timestamps("when", lambda msg: start + timedelta(days=msg.timestamp))
        on_time, _ = stamped.generate_epochs("epochs", limit_out_of_orderness(timedelta(hours=20)))
        on_time.key_distribute("all", lambda msg: "all").rollup("w", ["day", "month"], agg.count())

    (row,) = rows_of(build, [0, 1]).values()
    assert (row.what, row.open) == ("windows", 2)
    assert row.until == datetime(2026, 2, 1, 23, 59, 59, 999999, tzinfo=UTC)


class Broken:
    """A partition of time whose panes end when they are told to."""

    def number(self, timestamp: Any) -> int:
        return int(timestamp) // 10

    def start(self, number: int) -> int:
        return 10 * number

    def last(self, number: int) -> int:
        raise ValueError("no end")


def test_an_explanation_that_fails_does_not_end_the_run() -> None:
    def build(provider: Any) -> None:
        stream = provider.new_stream().source("s", SingleIteratorSource([1, 2]))
        on_time, _ = stream.generate_epochs("epochs", lambda msg, _: None)
        keyed = on_time.key_distribute("all", lambda msg: "all")
        keyed.window(TimeWindows(Broken())).aggregate("w", agg.count())

    run = Store().restore(compiled(build), 1)
    run.tick()
    assert all(time.waiting is None for times in run.explain().values() for time in times.values())
    run.close()
