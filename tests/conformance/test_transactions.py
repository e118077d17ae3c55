"""Sinks that deliver exactly once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import OperatorError, StreamProvider, agg, limit_out_of_orderness
from malflow.snapshot import FsspecBackend
from malflow.testing import PAUSE, ScriptedSource, Timed
from malflow.windows import tumbling
from tests.kit.ledger import LedgerSink, rows_of, transactions_of

EVERY = timedelta(milliseconds=20)


def flow(numbers: list[Any], sink: LedgerSink, *, bad: int | None = None) -> Any:
    script = [item for number in numbers for item in (number, PAUSE)]

    def each(number: int) -> int:
        if number == bad:
            raise ValueError("bad number")
        return number

    def build(provider: StreamProvider) -> None:
        source = ScriptedSource({"part": script})
        provider.new_stream().source("numbers", source).map("each", each).sink("ledger", sink)

    return build


def test_a_record_is_visible_once_whatever_run_wrote_it(any_parallelism: Any, tmp_path: Path) -> None:
    backend, path = FsspecBackend(str(tmp_path / "state")), tmp_path / "db"
    with pytest.raises(OperatorError):
        any_parallelism(flow([1, 2, 3, 4], LedgerSink(path), bad=4), backend, EVERY).execute()
    seen = transactions_of(path)
    any_parallelism(flow([1, 2, 3, 4], LedgerSink(path)), backend, EVERY).execute()
    assert rows_of(path) == [1, 2, 3, 4]
    assert {transaction: transactions_of(path)[transaction] for transaction in seen} == seen
    any_parallelism(flow([1, 2, 3, 4, 5], LedgerSink(path)), backend, EVERY).execute()
    assert rows_of(path) == [1, 2, 3, 4, 5]


def test_the_output_of_the_end_is_visible_once_over_restarts(any_parallelism: Any, tmp_path: Path) -> None:
    backend, path = FsspecBackend(str(tmp_path / "state")), tmp_path / "db"

    def build_with(numbers: list[int]) -> Any:
        def build(provider: StreamProvider) -> None:
            script = [item for number in numbers for item in (Timed(number, number), PAUSE)]
            stream = provider.new_stream().source("numbers", ScriptedSource({"part": script}))
            timed, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
            sums = timed.key_distribute("all", lambda _: 0).window(tumbling(10)).aggregate("sum", agg.sum())
            sums.map("value", lambda result: result.value).sink("ledger", LedgerSink(path, staged=True))

        return build

    for _ in range(3):
        any_parallelism(build_with([1, 2, 12]), backend, EVERY, at_end="finish").execute()
        assert rows_of(path) == [3, 12]
    any_parallelism(build_with([1, 2, 12, 13]), backend, EVERY, at_end="finish").execute()
    assert rows_of(path) == [3, 12, 25], "the window of the end has more records now"
