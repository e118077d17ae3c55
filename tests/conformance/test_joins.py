"""Joins mean the same on every runtime, in snapshots too."""

from __future__ import annotations

from typing import Any

import pytest

from malflow.sinks import VecSink
from malflow.testing import ScriptedSource
from tests.joins.model import interval_joined
from tests.joins.running import counted, interval, joined_flow, script_of, sides_of

RECORDS = [(n * 5 % 2, "abc"[n % 3], n * 7 % 11 + n, n) for n in range(60)]


def results_of(runtime: Any, add: Any) -> Any:
    """Return the results of a join of the records."""
    sink: VecSink[Any, Any, Any] = VecSink()
    runtime(joined_flow(ScriptedSource(script_of(RECORDS)), 11, add, sink)).execute()
    return counted(sink)


@pytest.mark.parametrize("how", ["inner", "outer"])
def test_interval_joins(any_parallelism: Any, how: Any) -> None:
    assert results_of(any_parallelism, interval(2, 5, how)) == interval_joined(*sides_of(RECORDS), 2, 5, how)
