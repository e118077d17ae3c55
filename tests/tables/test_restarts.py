"""Tables and their joins are exactly once: stops, crashes and rescales change no state and no change that is sent."""

from __future__ import annotations

from typing import Any

import pytest

from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import ScriptedSource, assert_exactly_once
from tests.tables.running import flow_of, script_of

ROWS = [None, 0, 1, 1, 2]
GIVEN = [(n * 7 % 5 % 2, "abc"[n * 5 % 7 % 3], n * 3 % 7 + n, ROWS[n * 11 % 13 % 5]) for n in range(24)]


def pair(value: Any, row: Any) -> Any:
    """Join by making a tuple."""
    return value, row


def count(_key: Any, change: Any, before: int) -> tuple[int, int | None]:
    """Count the rows of a group."""
    now = before + {"insert": 1, "update": 0, "delete": -1}[change.kind]
    return now, now or None


FLOWS: dict[str, Any] = {
    "changes": lambda left, _: left.to_table("table").changes(),
    "rows that expire": lambda left, _: left.to_table("table", ttl=4).rows(),
    "groups": lambda left, _: (
        left.to_table("table").grouped("group", lambda row: row % 2).stateful_map("count", count, default=int)
    ),
    "in time": lambda left, right: left.join_table("join", right.to_table("table", ttl=5), pair, how="inner"),
    "by arrival": lambda left, right: left.join_table("join", right.to_table("table"), pair, at="arrival"),
    "two tables": lambda left, right: (
        left.to_table("one").join("both", right.to_table("two"), pair, how="outer").filter("some", any).changes()
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOWS)
def test_tables_are_exactly_once(name: str) -> None:
    build = flow_of(StatefulSource(ScriptedSource([])), FLOWS[name], VecSink(), bound=4)
    assert_exactly_once(build, {"source": script_of(GIVEN)}, max_examples=8)
