"""Timers of logics fire alike on every runtime."""

from __future__ import annotations

from typing import Any

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
