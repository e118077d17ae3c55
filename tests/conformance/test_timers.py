"""Timers of logics fire alike on every runtime."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from malflow import DataMessage, StatefulLogic
from tests.conformance.dataflow import messages_of
from tests.conformance.test_windows import READINGS, stamped
from tests.selection.model import by_key
from tests.timers.model import Dropping, fired_rows

BOUND = 9
ROWS = [(reading["sensor"], reading["at"], reading["at"] % 11 or "sleep") for reading in READINGS]


def test_timers(any_parallelism: Any) -> None:
    def build(stream: Any) -> Any:
        keyed = stamped(stream, BOUND).map("value", lambda reading: reading["at"] % 11 or "sleep")
        return keyed.stateful_op("timed", Dropping())

    rows = [(it.key, it.timestamp, it.value) for it in messages_of(any_parallelism, READINGS, build)]
    expected = fired_rows(ROWS, BOUND, drops=True)
    assert len(expected) > 5
    assert by_key(rows) == by_key(expected)


class Once(StatefulLogic[Any, Any, Any, Any, Any]):
    """Sets a timer of the clock with a key's first record."""

    def on_data(self, msg: Any, state: Any, output: Any) -> int:
        """Count."""
        if state is None:
            output.wake_after(timedelta(microseconds=1))
        return (state or 0) + 1

    def on_timer(self, key: Any, at: Any, state: int, output: Any) -> int:
        """Send one message a key."""
        output.send(DataMessage(key, isinstance(at, datetime) and at.tzinfo is UTC, 1000))
        return state


def test_timers_of_the_clock(any_parallelism: Any) -> None:
    def build(stream: Any) -> Any:
        return stream.key_distribute("sensor", lambda msg: msg.value["sensor"]).stateful_op("once", Once())

    rows = [(it.key, it.value) for it in messages_of(any_parallelism, READINGS, build)]
    assert sorted(rows) == [("s0", True), ("s1", True), ("s2", True)]
