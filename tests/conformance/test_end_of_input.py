"""The end of the input: open results are emitted, or kept for the next run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import (
    MAX,
    DataMessage,
    GraphError,
    StatefulLogic,
    StatelessLogic,
    StreamProvider,
    agg,
    limit_out_of_orderness,
)
from malflow.events import InputEnded
from malflow.patterns import step
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import ScriptedSource, Timed
from malflow.windows import Timing, counting, session, sliding, tumbling
from tests.conformance.test_events import Heard
from tests.kit.ledger import LedgerSink, rows_of

Build = Callable[[Any], Any]
EVERY = timedelta(milliseconds=50)
AN_O, A_P = step("o", lambda v: v == "o"), step("p", lambda v: v == "p")


class Alarm(StatefulLogic[Any, Any, int, str, int]):
    """Sets a timer for each "o", which fires five later."""

    def on_data(self, msg: DataMessage[Any, Any, int], state: int | None, output: Any) -> int:
        if msg.value == "o":
            output.wake(msg.timestamp + 5)
        return 1

    def on_timer(self, key: Any, at: int, state: int, output: Any) -> int:
        output.send(DataMessage(key, f"{output.timing!r} at {at}", at))
        return state


class AtEpochs(StatefulLogic[Any, Any, int, str, int]):
    """Emits its states at the end."""

    def on_data(self, msg: DataMessage[Any, Any, int], state: int | None, output: Any) -> int:
        return 1

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        for key in states if epoch is MAX else ():
            output.send(DataMessage(key, "end", epoch))


class Summary(StatelessLogic[Any, Any, int, str]):
    """Emits a message at the end."""

    def on_data(self, msg: DataMessage[Any, Any, int], output: Any) -> None:
        pass

    def on_epoch(self, epoch: Any, output: Any) -> None:
        if epoch is MAX:
            output.send(DataMessage(0, "end", epoch))


def absence(stream: Any) -> Any:
    return stream.match("it", AN_O.then_not(A_P, during=30), order="arrival").matches


WAITING: dict[str, tuple[Build, str]] = {
    "tumbling": (lambda s: s.window(tumbling(10)).aggregate("it", agg.count()), "1 window"),
    "sliding": (lambda s: s.window(sliding(10, 5)).aggregate("it", agg.count()), "1 pane of windows"),
    "session": (lambda s: s.window(session(10)).aggregate("it", agg.count()), "1 key with sessions"),
    "count": (lambda s: s.window(counting(5)).aggregate("it", agg.count()), "1 window"),
    "timer": (lambda s: s.stateful_op("it", Alarm()), "1 timer"),
    "on_epoch": (lambda s: s.stateful_op("it", AtEpochs()), "1 on_epoch state"),
    "stateless": (lambda s: s.stateless_op("it", Summary()), "1 on_epoch call"),
    "pattern": (absence, "1 partial"),
    "sort": (lambda s: s.sort("it"), "1 record"),
    "batch": (lambda s: s.batch("it", 5, within=30), "1 list"),
}


def keyed(provider: StreamProvider, source: Any) -> Any:
    stream = provider.new_stream().source("source", source)
    on_time, late = stream.generate_epochs("epochs", limit_out_of_orderness(2))
    late.sink("late", VecSink())
    return on_time.key_distribute("key", lambda _: "k")


@pytest.mark.parametrize("name", WAITING)
def test_open_results_are_kept_or_emitted(
    name: str, runtime: Any, store: FsspecBackend, caplog: pytest.LogCaptureFixture
) -> None:
    add, text = WAITING[name]
    before: VecSink[Any, Any, Any] = VecSink()

    def build(sink: Any) -> Callable[[StreamProvider], None]:
        return lambda provider: add(keyed(provider, ScriptedSource([Timed("o", 3)]))).sink("sink", sink)

    heard = Heard()
    runtime(build(before), store, listeners=[heard]).execute()
    assert not before.values
    (ended,) = heard.of(InputEnded)
    assert (ended.at_end, ended.is_chosen, ended.held) == ("keep", False, {"it": text})
    assert f"{text} of operator 'it'" in caplog.text
    assert "at_end='finish'" in caplog.text
    caplog.clear()
    after: VecSink[Any, Any, Any] = VecSink()
    runtime(build(after), store, at_end="finish").execute()
    assert after.values, "the next run has it still"
    assert not caplog.text


@pytest.mark.parametrize("at_end", ["finish", "keep"])
def test_an_explicit_choice_is_not_warned_of(runtime: Any, store: FsspecBackend, caplog: Any, at_end: str) -> None:
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        keyed(provider, ScriptedSource([Timed("o", 3)])).window(tumbling(10)).aggregate("w", agg.count()).sink(
            "s", sink
        )

    runtime(build, store, at_end=at_end).execute()
    assert len(sink) == (at_end == "finish")
    assert not caplog.text


def test_operators_that_hold_nothing_cause_no_warning(any_parallelism: Any, store: FsspecBackend, caplog: Any) -> None:
    def build(provider: StreamProvider) -> None:
        stream = keyed(provider, ScriptedSource([Timed("o", 3), Timed("x", 9), Timed("x", 40)]))
        stream.match("m", AN_O.then(A_P), order="arrival").matches.sink("matches", VecSink())
        stream.stateful_map("count", lambda _, value, n: (n + 1, n + 1), default=int).sink("counts", VecSink())

    any_parallelism(build, store).execute()
    assert not [it for it in caplog.messages if "has 1 part for 2 workers" not in it]


def test_a_run_without_persistence_finishes_unless_it_is_told_to_keep(any_parallelism: Any) -> None:
    def results(**options: Any) -> int:
        sink: VecSink[Any, Any, Any] = VecSink()

        def build(provider: StreamProvider) -> None:
            stream = keyed(provider, ScriptedSource([Timed("o", 3)]))
            stream.window(tumbling(10)).aggregate("w", agg.count()).sink("s", sink)

        any_parallelism(build, **options).execute()
        return len(sink)

    assert results() == 1
    assert results(at_end="keep") == 0
    with pytest.raises(GraphError, match="at_end must be 'finish', 'keep' or None; got 'stop'"):
        results(at_end="stop")


def test_an_alert_is_committed_once_however_often_a_job_runs(any_parallelism: Any, tmp_path: Path) -> None:
    """A job that cron runs over a growing file: a short silence at the end of a run is no absence."""
    backend, path = FsspecBackend(str(tmp_path / "state")), tmp_path / "db"
    orders = [
        Timed(("A", "order"), 0),
        Timed(("B", "order"), 60),
        Timed(("B", "paid"), 120),
        Timed(("C", "order"), 5000),
    ]
    pattern = step("o", lambda v: v[1] == "order").then_not(step("p", lambda v: v[1] == "paid"), during=1800)

    def build(script: list[Any]) -> Any:
        def build_dataflow(provider: StreamProvider) -> None:
            stream = provider.new_stream().source("orders", ScriptedSource({"part": script}))
            on_time, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
            matches = on_time.key_distribute("order", lambda msg: msg.value[0]).match("unpaid", pattern).matches
            matches.map("row", lambda match: [match.key, match.end]).sink("out", LedgerSink(path, staged=True))

        return build_dataflow

    for known in range(1, len(orders) + 1):
        any_parallelism(build([*orders[:known]]), backend, EVERY).execute()
        assert rows_of(path) == ([["A", 1800]] if known == len(orders) else [])


ITEMS = [Timed("o", 1), Timed("x", 3), Timed("o", 40), Timed("x", 60), Timed("o", 61)]
MADE: dict[str, tuple[Build, list[Timing]]] = {
    "absence by time": (
        lambda s: s.match("it", AN_O.then_not(A_P, during=15)).matches,
        [Timing.FINAL, Timing.FINAL, Timing.END],
    ),
    "absence by arrival": (
        lambda s: s.match("it", AN_O.then_not(A_P, during=15), order="arrival").matches,
        [Timing.FINAL, Timing.FINAL, Timing.END],
    ),
    "timeouts": (
        lambda s: s.match("it", AN_O.then(A_P).within(15)).timeouts,
        [Timing.FINAL, Timing.FINAL, Timing.END],
    ),
    "windows": (
        lambda s: s.window(tumbling(30)).aggregate("it", agg.count()),
        [Timing.FINAL, Timing.FINAL, Timing.END],
    ),
    "interval join": (
        lambda s: s.filter("o", lambda v: v == "o").interval_join(
            "it", s.filter("p", lambda v: v == "p"), before=5, after=5, how="left"
        ),
        [Timing.FINAL, Timing.FINAL, Timing.END],
    ),
    "as-of join": (
        lambda s: s.filter("o", lambda v: v == "o").asof_join("it", s.filter("p", lambda v: v == "x"), how="left"),
        [Timing.FINAL, Timing.FINAL, Timing.END],
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_results_say_whether_the_end_of_the_input_made_them(name: str, runtime: Any) -> None:
    add, timings = MADE[name]
    sink: VecSink[Any, Any, Any] = VecSink()
    runtime(lambda provider: add(keyed(provider, ScriptedSource([*ITEMS]))).sink("sink", sink)).execute()
    assert [Timing.of(result) for result in sink.values] == timings
    if "join" in name:
        left, right = sink.values[-1]
        assert (left, right) == sink.values[-1] == ("o", "x" if name == "as-of join" else None)


def test_a_timer_knows_whether_the_end_of_the_input_fires_it(runtime: Any) -> None:
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        source = ScriptedSource([Timed("o", 1), Timed("x", 20), Timed("o", 21)])
        keyed(provider, source).stateful_op("it", Alarm()).sink("sink", sink)

    runtime(build).execute()
    assert sink.values == ["FINAL at 6", "END at 26"]
