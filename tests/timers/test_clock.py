"""Timers in tick time fire at the start of the first tick at or after their time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from malflow import DataMessage, OperatorError, StatefulLogic
from malflow.engine.ticks import RunClock
from malflow.sinks import VecSink
from malflow.testing import PAUSE
from malflow.testing.driven import DrivenRun
from tests.kit.driving import Store, compiled, finish
from tests.windows.running import results_of, source_of, windowed_flow

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class HandClock(RunClock):
    """A clock that a test sets."""

    def __init__(self, minute: int) -> None:
        super().__init__()
        self.now = START + minute * MINUTE

    def read(self) -> tuple[datetime, datetime]:
        """Return the time that was set."""
        return self.now, START


class Waking(StatefulLogic[Any, Any, Any, Any, Any]):
    """Sets timers as values say; the state is the last timestamp."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        """Set the timer by the clock, or by event time, or drop it."""
        kind, delay = msg.value
        if kind == "clock":
            output.wake_after(delay * MINUTE)
        elif kind == "event":
            output.wake(msg.timestamp + delay)
        elif kind == "sleep":
            output.sleep()
        return None if kind == "drop" else msg.timestamp

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> Any:
        """Send the time of the timer; one of the clock is set again."""
        if isinstance(at, datetime):
            output.send(DataMessage(key, (at - START) // MINUTE, state + 1))
            output.wake_after(5 * MINUTE)
            return state
        output.send(DataMessage(key, ("event", at), at))
        return None


def flow(items: Sequence[Any], sink: Any) -> Any:
    """Return a dataflow with a tick for each item."""
    spread = [part for item in items for part in (item, PAUSE)]
    return windowed_flow(source_of(spread), 0, lambda keyed: keyed.stateful_op("it", Waking()), sink)


def tick_at(run: DrivenRun, minute: int) -> None:
    """Take a tick that begins at a minute, and one for the pause behind its record."""
    run.ticks.clock = HandClock(minute)
    run.tick()
    run.tick()


def driven(items: Sequence[Any], minutes: Sequence[int], *, workers: Sequence[int] = (1,)) -> list[Any]:
    """Return what is sent in ticks at the given minutes; each may run on another number of workers."""
    sink: VecSink[Any, Any, Any] = VecSink()
    program, store = compiled(flow(items, sink)), Store()
    run = store.restore(program, workers[0])
    for index, minute in enumerate(minutes):
        tick_at(run, minute)
        if len(workers) > 1:
            store.commit(run, program)
            run.close()
            run = store.restore(program, workers[(index + 1) % len(workers)])
    run.close()
    return list(sink.values)


@pytest.mark.parametrize("workers", [(1,), (1, 1), (1, 3, 2)])
def test_they_fire_when_their_time_has_come(workers: Sequence[int]) -> None:
    items = [("a", 1, ("clock", 10)), ("b", 2, ("clock", 3)), ("c", 3, ("none", 0)), ("c", 4, ("none", 0))]
    assert driven(items, [0, 1, 9, 10, 14], workers=workers) == [4, 10, 14]
    assert driven(items, [0, 1, 3], workers=workers) == []


def test_a_late_tick_fires_all_in_their_order_before_its_records() -> None:
    items = [("a", 1, ("clock", 10)), ("b", 2, ("clock", 3)), ("a", 3, ("sleep", 0))]
    assert driven(items, [0, 0, 100]) == [3, 10]


@pytest.mark.parametrize("last", [("sleep", 0), ("drop", 0), ("event", 50)])
def test_a_key_has_one_timer(last: Any) -> None:
    items = [("a", 1, ("clock", 10)), ("a", 2, last), ("b", 3, ("none", 0)), ("b", 4, ("none", 0))]
    assert driven(items, [0, 1, 20, 30]) == []
    again = [("a", 1, ("event", 2)), ("a", 2, ("clock", 10)), ("b", 9, ("none", 0)), ("b", 10, ("none", 0))]
    assert driven(again, [0, 1, 2, 11]) == [11]


def test_they_fire_once_at_the_end() -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    program = compiled(flow([("a", 1, ("clock", 10)), ("b", 2, ("event", 10))], sink))
    run = Store().restore(program, 1)
    run.ticks.clock = HandClock(0)
    finish(run)
    assert list(sink.values) == [("event", 12), 10]


def test_a_wrong_delay_is_an_error_of_its_record() -> None:
    with pytest.raises(OperatorError, match=r"key 'a'.*wake_after delay must be a time above zero, .*; got .*\(0\)"):
        results_of([("a", 1, ("clock", 0))], 0, lambda keyed: keyed.stateful_op("it", Waking()))
    with pytest.raises(OperatorError, match="method on_timer"):
        results_of([("a", 1, 1)], 0, lambda keyed: keyed.stateful_op("it", lambda _m, _s, out: out.wake_after(MINUTE)))


def test_the_clock_does_not_go_back_behind_a_snapshot() -> None:
    """The system's clock may have been set back, or be that of another machine."""
    ahead = datetime.now(UTC) + timedelta(days=1)
    clock = RunClock()
    clock.advance_to(ahead)
    clock.advance_to(START)
    assert clock.read() == (ahead, ahead)
