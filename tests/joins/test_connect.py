"""Two streams into one state: their order, their hooks, mistakes, and exactly-once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from malflow import (
    MAX,
    ConnectLogic,
    DataMessage,
    GraphError,
    OperatorError,
    SingleThreadRuntime,
    connect,
    index_select,
)
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, read_state
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource, assert_exactly_once
from tests.joins.running import joined_flow, results_of, script_of
from tests.joins.test_mistakes import build
from tests.kit.ticking import WholeTicks


class Notes(ConnectLogic[Any, Any, Any, Any, Any, Any]):
    """Keeps and sends what it sees, and the epochs at which it saw it."""

    def on_left(self, msg: Any, state: Any, output: Any) -> Any:
        """Note a left message."""
        return self._noted("left", msg, state, output)

    def on_right(self, msg: Any, state: Any, output: Any) -> Any:
        """Note a right message."""
        return self._noted("right", msg, state, output)

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        """Send an epoch and what has been seen until it."""
        for key, state in states.items():
            output.send(DataMessage(key, ("epoch", epoch, tuple(state)), epoch))

    def _noted(self, side: str, msg: Any, state: Any, output: Any) -> Any:
        output.send(DataMessage(msg.key, (side, msg.value), msg.timestamp))
        return [*state, msg.value]


def noted(left: Any, right: Any) -> Any:
    """Connect two streams with the logic."""
    return left.connect("notes", right, Notes(), default=list)


def test_within_a_tick_the_stream_whose_epoch_is_behind_goes_first() -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    ticks = [[(0, "a", "l0")], [(0, "a", "l1"), (1, "a", "r2"), (0, "a", "l3"), (1, "a", "r4")]]
    SingleThreadRuntime(joined_flow(StatefulSource(WholeTicks(ticks)), 0, noted, sink)).execute()
    assert [it.value[1] for it in sink if it.value[0] != "epoch"] == ["l0", "r2", "l1", "l3", "r4"]


def test_without_epochs_the_left_records_of_a_tick_go_first() -> None:
    sink: VecSink[Any, Any, Any] = VecSink()

    def flow(provider: Any) -> None:
        source = provider.new_stream().source("source", StatefulSource(WholeTicks([[2, 1, 4, 3], [6, 5]])))
        odd, even = (
            source.filter(f"side {n}", lambda value, n=n: value % 2 == n).key_distribute(f"key {n}", lambda _: 0)
            for n in (1, 0)
        )
        odd.connect("both", even, _send, _send).sink("out", sink)

    SingleThreadRuntime(flow).execute()
    assert sink.values == [1, 3, 2, 4, 5, 6]


def _send(msg: Any, state: Any, output: Any) -> Any:
    output.send(msg)
    return True


def test_epochs_are_the_least_of_both() -> None:
    items = [(0, "a", 5, "l"), PAUSE, (1, "a", 3, "r"), PAUSE, (1, "a", 9, "r")]
    seen = {it.value[1] for it in results_of(items, 0, noted) if it.value[0] == "epoch"}
    assert seen - {9} == {3, 5, MAX}  # the input that ended no longer counts


def test_a_stream_may_be_connected_with_itself() -> None:
    items = [(0, "a", 1, "one"), (0, "a", 2, "two")]
    sent = [it.value for it in results_of(items, 100, lambda left, _: noted(left, left)) if it.value[0] != "epoch"]
    assert sorted(sent) == [("left", "one"), ("left", "two"), ("right", "one"), ("right", "two")]


def test_a_stateful_op_may_get_a_second_input(tmp_path: Path) -> None:
    def count(msg: Any, state: int, output: Any) -> int:
        return state + int(msg.value)

    def less(msg: Any, state: int, output: Any) -> int:
        return state - int(msg.value)

    def build_with(right: bool) -> Callable[[Any], None]:
        def flow(provider: Any) -> None:
            script = ScriptedSource([(1, 7), (1, 2), END, (0, 4), (1, 1)])
            source = provider.new_stream().source("source", script)
            one, other = (
                source.filter(f"side {n}", lambda it, n=n: it[0] == n)
                .map(f"value {n}", lambda it: it[1])
                .key_distribute(f"key {n}", lambda msg: "all")
                for n in (1, 0)
            )
            made = one.connect("sum", other, count, less, default=int) if right else one.stateful_op("sum", count, int)
            made.sink("out", VecSink())

        return flow

    store = FsspecBackend(str(tmp_path))
    for right in (False, True):
        SingleThreadRuntime(build_with(right), store).execute()
    assert dict(read_state(store, "sum")) == {"all": 6}


def _takes_one(msg: Any) -> Any:
    return msg


def _forgets(msg: Any, state: Any, output: Any) -> None:
    output.send(msg)


class _Half:
    def on_left(self, msg: Any, state: Any, output: Any) -> Any:
        return state


MISTAKES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "one function": (
        lambda left, right: left.connect("both", right, _send),
        "needs a function for each of its two streams, on_left and on_right, or a logic object",
    ),
    "half a logic": (lambda left, right: left.connect("both", right, _Half()), "without on_right; write .connect"),
    "a class": (lambda left, right: left.connect("both", right, Notes), r"got the class Notes; write Notes\(\)"),
    "other arguments": (
        lambda left, right: left.connect("both", right, _send, _takes_one),
        r"calls on_right\(msg, state, output\), but _takes_one",
    ),
    "no return": (
        lambda left, right: left.connect("both", right, _forgets, _send),
        "on_left must return a value; _forgets",
    ),
    "a URL": (
        lambda left, _: left.connect("both", connect("towns.csv"), _send, _send),
        "connects two streams; got .*, the address of a source or sink; read it by",
    ),
    "a default that is no function": (
        lambda left, right: left.connect("both", right, _send, _send, default=0),
        "needs a function that creates a state as its default; got 0; write lambda: 0",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused_when_the_operator_is_added(name: str) -> None:
    add, problem = MISTAKES[name]
    with pytest.raises(GraphError, match=f"operator 'both' .*{problem}"):
        build(add)


def test_both_streams_need_keys_placed_alike() -> None:
    with pytest.raises(GraphError, match=r"its inputs are placed by .*index_select.* and .*rendezvous_select.*; call"):
        build(lambda left, right: left.connect("both", right, _send, _send), partitioner=index_select)
    with pytest.raises(GraphError, match="needs keyed streams; one has no key; call"):
        build(lambda left, right: left.connect("both", right, _send, _send), keyed=False)


def test_timers_in_event_time_need_epochs_of_both_streams() -> None:
    class Wakes(Notes):
        def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> Any:
            output.wake(at + 1)
            return state

    with pytest.raises(GraphError, match="has timers that wait for epochs"):
        build(lambda left, right: left.connect("both", right, Wakes(), default=list))


def test_an_error_names_the_function_of_its_stream() -> None:
    def fail(msg: Any, state: Any, output: Any) -> Any:
        raise ValueError(f"no {msg.value}")

    with pytest.raises(OperatorError, match=r"operator 'both' failed at key 'a', value 'r'.* no r; in fail \("):
        results_of(
            [(0, "a", 1, "l"), (1, "a", 1, "r")], 1, lambda left, right: left.connect("both", right, _send, fail)
        )


def fail_at_every_fourth(msg: Any, state: int, output: Any) -> int:
    """Count, and fail at some records."""
    if msg.value % 4 == 0:
        raise ValueError("no")
    output.send(DataMessage(msg.key, state + 1, msg.timestamp))
    return state + 1


GIVEN = [(n * 7 % 5 % 2, "abc"[n * 5 % 7 % 3], n * 3 % 7 + n, n) for n in range(24)]

FLOWS: dict[str, Callable[[Any, Any], Any]] = {
    "hooks": noted,
    "letters": lambda left, right: left.connect(
        "count", right, fail_at_every_fourth, fail_at_every_fourth, default=int, on_error="dead_letter"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOWS)
def test_stops_crashes_and_rescales_change_nothing(name: str) -> None:
    flow = joined_flow(ScriptedSource([]), 4, FLOWS[name], VecSink())
    assert_exactly_once(flow, {"source": script_of(GIVEN)}, max_examples=8, at_end="keep")
