"""Rules of timers, one by one, and mistakes with them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from malflow import (
    DataMessage,
    GraphError,
    OperatorError,
    SingleThreadRuntime,
    SnapshotError,
    StatefulLogic,
    agg,
    limit_out_of_orderness,
)
from malflow.engine.state_specs import states_of
from malflow.event_time.timers import Timers
from malflow.operators.contract import OperatorContext
from malflow.operators.keyed.timed_op import LogicTimers
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.testing import END, ScriptedSource
from malflow.windows import tumbling
from tests.kit.driving import compiled
from tests.windows.running import results_of, source_of, windowed_flow


class Timed(StatefulLogic[Any, Any, Any, Any, Any]):
    """A logic of two functions."""

    def __init__(self, take: Callable[..., Any], fire: Callable[..., Any] | None = None) -> None:
        self.take = take
        self.fire = fire or (lambda key, at, state, output: output.send(DataMessage(key, (at, state), at)))

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        """Call the first function, and count."""
        self.take(msg, output)
        return (state or 0) + 1

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> Any:
        """Call the second function."""
        self.fire(key, at, state, output)
        return state


def fired(items: list[Any], logic: Any) -> list[Any]:
    """Return the values that a logic sends."""
    return [it.value for it in results_of(items, 0, lambda keyed: keyed.stateful_op("it", logic))]


def ticking(key: Any, at: Any, state: Any, output: Any) -> None:
    """Send the state, and set the timer again."""
    output.send(DataMessage(key, (at, state), at))
    output.wake(at + 10)


def test_a_periodic_timer_catches_up_with_the_epoch() -> None:
    logic = Timed(lambda msg, output: output.wake(5) if msg.value == "start" else None, ticking)
    assert fired([("a", 0, "start"), ("a", 33, "")], logic) == [(5, 2), (15, 2), (25, 2), (35, 2)]


def test_a_periodic_timer_fires_once_at_the_end() -> None:
    logic = Timed(lambda msg, output: output.wake(msg.timestamp + 5), ticking)
    assert fired([("a", 0, ""), ("b", 0.5, "")], logic) == [(5, 1), (5.5, 1)]


def test_a_later_call_replaces_the_timer() -> None:
    logic = Timed(lambda msg, output: output.wake(msg.timestamp + 10))
    assert fired([("a", 0, ""), ("a", 5, ""), ("a", 9, ""), ("b", 50, "")], logic)[0] == (19, 3)


def test_keys_of_one_time_fire_in_the_order_of_setting() -> None:
    items = [("a", 1, 100), ("b", 2, 20), ("c", 3, 20), ("a", 4, 20)]
    order: list[Any] = []
    logic = Timed(lambda msg, output: output.wake(msg.value), lambda key, *_: order.append(key))
    fired([*items, ("b", 5, 20), ("d", 60, 70)], logic)
    assert order == ["b", "c", "a", "d"]


def test_the_order_of_setting_survives_snapshots() -> None:
    here, there = (LogicTimers(OperatorContext("it", tracked=True)) for _ in range(2))
    for key, at in (("a", 1), ("b", 20), ("c", 30)):
        here.set(key, at)
    there.apply(pickle.loads(pickle.dumps(here.delta())))
    here.set("b", 30)
    here.set("a", 20)
    here.set("b", 20)
    here.cancel("c")
    there.apply(pickle.loads(pickle.dumps(here.delta())))
    assert list(here.state.items()) == list(there.state.items()) == [("a", 20), ("b", 20)]
    assert there.pending.take(20) == ["a", "b"]
    assert there.pending.earliest is None


def test_messages_of_timers_are_in_time_for_windows() -> None:
    logic = Timed(lambda msg, output: output.wake(msg.timestamp + 3))
    messages = results_of(
        [(f"key {n}", n, n) for n in range(0, 50, 4)],
        0,
        lambda keyed: keyed.stateful_op("it", logic).window(tumbling(1)).aggregate("windows", agg.count()),
    )
    assert [it.timestamp for it in messages] == [n + 3 for n in range(0, 50, 4)]


@pytest.mark.parametrize(
    ("take", "message"),
    [
        (
            lambda msg, output: output.wake(msg.timestamp - 1),
            r"key 'a'.* takes a time in the future; got 8, .* not after 8",
        ),
        (lambda _msg, output: output.wake(None), r"takes a time; got None; call output.sleep\(\)"),
        (lambda _msg, output: output.wake(float("nan")), "takes a time; got nan"),
        (lambda _msg, output: output.wake(datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Prague"))), "astimezone"),
        (lambda _msg, output: output.wake("soon"), "operator 'it' failed at key 'a'"),
    ],
)
def test_a_wrong_time_is_an_error_of_its_record(take: Callable[..., Any], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        fired([("a", 8, ""), ("a", 9, "")], Timed(take))


def test_a_timer_cannot_be_set_again_for_its_own_time() -> None:
    logic = Timed(lambda msg, output: output.wake(msg.timestamp + 1), lambda _key, at, _state, output: output.wake(at))
    with pytest.raises(OperatorError, match=r"the timer of key 'a' at 1: .* got 1, which is not after 1"):
        fired([("a", 0, ""), ("b", 9, "")], logic)


def test_functions_cannot_set_timers() -> None:
    with pytest.raises(OperatorError, match=r"method on_timer\(key, at, state, output\)"):
        fired([("a", 0, "")], lambda msg, _state, output: output.wake(msg.timestamp + 1))
    with pytest.raises(OperatorError, match="method on_timer"):
        results_of([("a", 0, "")], 0, lambda keyed: keyed.stateless_op("it", lambda _msg, output: output.sleep()))


def test_there_is_no_key_at_hand_in_an_epoch() -> None:
    class Waking(Timed):
        def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
            output.wake(1000)

    with pytest.raises(OperatorError, match="timers belong to keys"):
        fired([("a", 0, "")], Waking(lambda *_: None))


def test_misspelt_timers_are_refused() -> None:
    class Misspelt(StatefulLogic[Any, Any, Any, Any, Any]):
        def on_data(self, msg: Any, state: Any, output: Any) -> Any: ...
        def on_timers(self, key: Any, at: Any, state: Any, output: Any) -> Any: ...

    with pytest.raises(GraphError, match=r"on_timers\(\), which is never called; write on_timer\(\)"):
        fired([], Misspelt())


def test_logics_without_timers_keep_no_state_for_them() -> None:
    def states(logic: Any) -> list[str]:
        build = windowed_flow(source_of([]), 0, lambda keyed: keyed.stateful_op("it", logic), VecSink())
        return [spec.name for spec in states_of(compiled(build)) if spec.name.startswith("it")]

    assert states(lambda _msg, _state, _output: 1) == ["it", "it/letters"]
    assert states(Timed(print)) == ["it", "it/timers", "it/clock-timers", "it/epoch", "it/letters"]


def runs(folder: Path, *steps: tuple[Any, dict[str, Any], dict[str, Any]]) -> list[Any]:
    """Run a job with one logic after the other; return what the last run emits."""
    source = StatefulSource(ScriptedSource([1, 2, END, 3, 4]))
    sink: VecSink[Any, Any, Any] = VecSink()
    for logic, of_operator, of_run in steps:
        sink = VecSink()
        changes = {"name": "it", **of_operator}

        def build(provider: Any, logic: Any = logic, changes: Any = changes, sink: Any = sink) -> None:
            stream = provider.new_stream().source("source", source)
            on_time, late = stream.generate_epochs("epochs", limit_out_of_orderness(0))
            late.sink("late", VecSink())
            keyed = on_time.key_distribute("key", lambda msg: msg.value)
            keyed.stateful_op(logic=logic, **changes).sink("results", sink)

        SingleThreadRuntime(build, persistence=FsspecBackend(str(folder)), at_end="finish", **of_run).execute()
    return list(sink.values)


def early(msg: Any, output: Any) -> None:
    """Set timers of two keys only."""
    if msg.value <= 2:
        output.wake(msg.timestamp + 2.5)


def test_timers_survive_a_restart_and_a_new_name(tmp_path: Path) -> None:
    first: Any = (Timed(early), {}, {})
    assert runs(tmp_path / "same", first, first) == [(2.5, 1), (3.5, 1)]
    renamed = (Timed(early), {"name": "other"}, {"renamed": {"it": "other"}})
    assert runs(tmp_path / "renamed", first, renamed) == [(2.5, 1), (3.5, 1)]


def test_timers_of_keys_that_a_migration_drops_are_gone(tmp_path: Path) -> None:
    changes = {"version": 2, "migrate": lambda state, _version: None}
    assert runs(tmp_path, (Timed(early), {}, {}), (Timed(early), changes, {})) == []


def test_a_logic_gains_timers_and_does_not_lose_them_silently(tmp_path: Path) -> None:
    def count(_msg: Any, state: Any, _output: Any) -> int:
        return (state or 0) + 1

    assert runs(tmp_path / "gained", (count, {}, {}), (Timed(early), {}, {})) == []
    with pytest.raises(SnapshotError, match="'it/timers'"):
        runs(tmp_path / "lost", (Timed(early), {}, {}), (count, {}, {}))


def test_moved_deadlines_do_not_pile_up() -> None:
    timers = Timers()
    for at in range(100_000):
        timers.set("a", at)
    assert len(timers._heap) < 5000
    assert timers.earliest == 99_999
