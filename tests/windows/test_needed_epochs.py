"""Operators that wait for epochs (watermarks) are refused on streams without any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from malflow import (
    DataMessage,
    GraphError,
    SingleThreadRuntime,
    StatefulLogic,
    StreamProvider,
    agg,
    limit_out_of_orderness,
)
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.windows import counting, session, sliding, tumbling


class Waking(StatefulLogic[Any, Any, Any, Any, int]):
    """Sets a timer of event time."""

    def on_data(self, msg: Any, state: Any, output: Any) -> int:
        output.wake(msg.timestamp + 1)
        return 1

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> int:
        output.send(DataMessage(key, at, at))
        return 1


class WakingByTheClock(Waking):
    """Sets a timer of the clock."""

    def on_data(self, msg: Any, state: Any, output: Any) -> int:
        output.send(msg)
        return 1


WAITING: dict[str, Callable[[Any, Any], Any]] = {
    "tumbling": lambda it, _: it.window(tumbling(5)).aggregate("op", agg.count()),
    "sliding": lambda it, _: it.window(sliding(6, 2)).aggregate("op", agg.count()),
    "session": lambda it, _: it.window(session(5)).aggregate("op", agg.count()),
    "cogroup": lambda it, other: it.window(tumbling(5)).cogroup("op", other),
    "sort": lambda it, _: it.sort("op"),
    "interval_join": lambda it, other: it.interval_join("op", other, before=1, after=1),
    "asof_join": lambda it, other: it.asof_join("op", other),
    "timer": lambda it, _: it.stateful_op("op", Waking()),
}

GOING_ON: dict[str, Callable[[Any, Any], Any]] = {
    "counting": lambda it, _: it.window(counting(1)).aggregate("op", agg.count()),
    "timer of the clock": lambda it, _: it.stateful_op("op", WakingByTheClock()),
    "distinct": lambda it, _: it.distinct("op", within=5),
    "running": lambda it, _: it.aggregate("op", agg.count()),
}


def run(add: Callable[[Any, Any], Any], timed: tuple[bool, bool] = (False, False)) -> list[Any]:
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        streams = []
        for name, has_epochs in zip("ab", timed, strict=True):
            stream: Any = provider.new_stream().source(name, SingleIteratorSource(range(9)))
            if has_epochs:
                stream = stream.generate_epochs(f"epochs {name}", limit_out_of_orderness(0)).on_time
            streams.append(stream.key_distribute(f"key {name}", lambda msg: 1))
        add(*streams).sink("out", out)

    SingleThreadRuntime(build).execute()
    return out.values


@pytest.mark.parametrize("kind", WAITING)
def test_operators_that_wait_for_epochs_need_some(kind: str) -> None:
    with pytest.raises(
        GraphError,
        match=r"operator 'op' .*epochs .*an input has none; call .event_time\(\) or .generate_epochs\(\) before",
    ):
        run(WAITING[kind])
    assert run(WAITING[kind], (True, True))


@pytest.mark.parametrize("kind", ["cogroup", "interval_join", "asof_join"])
def test_each_side_of_a_join_needs_epochs(kind: str) -> None:
    with pytest.raises(GraphError, match="an input has none"):
        run(WAITING[kind], (True, False))


@pytest.mark.parametrize("kind", GOING_ON)
def test_operators_that_need_no_epochs_run_without(kind: str) -> None:
    assert run(GOING_ON[kind])
