"""A run ends if too large a share of an operator's records has failed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import Budget, GraphError, OnError, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.testing import PAUSE, ScriptedSource


def run(items: list[Any], budget: Budget, store: Any = None, fate: Any = "skip") -> list[Any]:
    sink: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("items", ScriptedSource(items))
        stream.map("parse", int, on_error=OnError(fate, budget=budget)).sink("out", sink)

    SingleThreadRuntime(build_dataflow, *([] if store is None else [store])).execute()
    return sink.values


@pytest.mark.fault("N10")
def test_more_failures_than_the_budget_end_the_run_with_examples() -> None:
    with pytest.raises(
        OperatorError,
        match=r"'parse' failed at 3 of the last 10 records, more than the 20.0% of its budget: ValueError 2 times; "
        r"such as ValueError: invalid .*'x' at key NoKey, value 'x', timestamp 0; .*TypeError.*None.*last snapshot",
    ):
        run(["x", "y", None, *"1234567"], Budget(0.2, least=10))
    assert len(run(["x", "y", *"12345678"], Budget(0.2, least=10))) == 8


def test_few_records_decide_nothing() -> None:
    assert run(["x", "1"], Budget(0.0, least=3)) == [1]


def test_failures_before_the_window_do_not_count() -> None:
    apart = PAUSE(120)
    assert run(["x", apart, *"1234", apart, "y", apart, *"1234"], Budget(0.3, timedelta(seconds=60), least=2))
    with pytest.raises(OperatorError, match="failed at 2 of the last 3 records"):
        run(["x", PAUSE(10), "y", PAUSE(10), "1"], Budget(0.5, timedelta(seconds=60), least=3))


@pytest.mark.fault("N10")
def test_the_last_snapshot_stands(tmp_path: Path) -> None:
    store = FsspecBackend(str(tmp_path))
    run(["x", *"123"], Budget(0.3, least=2), store, "dead_letter")
    with pytest.raises(OperatorError, match="failed at 2 of the last 2 records"):
        run(["x", *"123", "y", "z"], Budget(0.3, least=2), store, "dead_letter")
    assert [it.value for it in dead_letters(store)] == ["x"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Budget(2), r"Budget share must be a number, from 0 to 1; got 2"),
        (lambda: Budget(0.1, timedelta(0)), r"Budget window must be a time above zero"),
        (lambda: Budget(0.1, least=0), r"Budget least must be a whole number, at least 1; got 0"),
        (lambda: OnError("skip", budget=0.1), r"OnError budget must be a Budget; got 0.1"),  # type: ignore[arg-type]
        (lambda: OnError("skip", keep=0), r"OnError keep must be a whole number, at least 1; got 0"),
        (lambda: OnError("skip", full="drop"), r"OnError full must be 'fail' or"),  # type: ignore[arg-type]
    ],
)
def test_mistakes_in_options_are_refused(make: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        make()
