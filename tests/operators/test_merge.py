"""The merging of edges: the epochs that it issues, when edges become idle and after a restart."""

from __future__ import annotations

import pickle
import sys
from datetime import datetime, timedelta
from typing import Any

import pytest

from malflow import MAX, OperatorError, SingleThreadRuntime, StreamProvider, limit_out_of_orderness
from malflow.engine.compiler import compile_graph
from malflow.graph import Graph
from malflow.nodes import ExchangeNode
from malflow.operators.contract import OperatorContext
from malflow.operators.routing import Merge
from malflow.records.batch import Batch
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.states.keyed import Delta

BUSY, IDLE = 0, 1


def merge_of(edges: int, state: dict[Any, Any] | None = None) -> Merge:
    merge = Merge(OperatorContext("merge", tracked=True), edges, in_turn=True)
    if state is not None:
        merge.apply(Delta(state, whole=True))
    return merge


def epochs(*given: Any, records: int = 0) -> list[Batch]:
    """Make the batches of an edge: some records, and an epoch after them for each that is given."""
    column = [0] * records
    return [Batch(None, column, column, [(records, epoch)]) for epoch in given]


def tick(merge: Merge, *edges: list[Batch]) -> list[Any]:
    """Return the epochs that come out."""
    return [epoch for (batch,) in merge.run(edges) for _, epoch in batch.epochs]


def test_the_least_epoch_is_given_when_it_grows() -> None:
    merge = merge_of(2)
    assert tick(merge, epochs(3, 7), []) == []
    assert tick(merge, [], epochs(5)) == [5]
    assert tick(merge, epochs(9), epochs(6, 8)) == [6, 7, 8]


def test_edges_that_fall_idle_hold_back_no_more_and_need_no_input_for_it() -> None:
    merge = merge_of(3)
    assert tick(merge, epochs(9), epochs(5), []) == []
    merge.set_idle_inputs([BUSY, BUSY, IDLE])
    assert tick(merge, [], [], []) == [5]
    merge.set_idle_inputs([BUSY, IDLE, IDLE])
    assert tick(merge, epochs(12), [], []) == [9, 12]
    merge.set_idle_inputs([IDLE, IDLE, IDLE])
    assert tick(merge, epochs(99), [], []) == []
    merge.set_idle_inputs([BUSY, BUSY, BUSY])
    assert tick(merge, *[epochs(MAX)] * 3) == [99, MAX]


def test_records_pass_along_idle_edges() -> None:
    merge = merge_of(2)
    merge.set_idle_inputs([IDLE, IDLE])
    assert [len(batch) for (batch,) in merge.run([epochs(1, records=2), epochs(2, records=3)])] == [5]


@pytest.mark.parametrize("edges", [1, 2])
def test_no_epoch_comes_twice_after_a_restart(edges: int) -> None:
    first = merge_of(edges)
    first.set_idle_inputs([BUSY, IDLE][:edges])
    assert tick(first, *[epochs(4, 8)] * edges) == [4, 8]
    state = pickle.loads(pickle.dumps(first.delta())).changed
    for idle in ([BUSY, IDLE], [BUSY, BUSY]):
        second = merge_of(edges, state)
        second.set_idle_inputs(idle[:edges])
        assert not second.delta().changed.keys() - {"idle"}
        assert tick(second, *[epochs(2, 8)] * edges) == []
        assert tick(second, *[epochs(9)] * edges) == [9]


def test_the_epoch_stays_when_an_edge_that_had_ended_has_more() -> None:
    merge = merge_of(2)
    assert tick(merge, epochs(3), epochs(2)) == [2]
    merge.set_idle_inputs([IDLE, BUSY])
    assert tick(merge, [], epochs(50)) == [50]
    again = merge_of(2, dict(merge.delta().changed))
    again.set_idle_inputs([BUSY, IDLE])
    assert tick(again, epochs(7, 40), []) == []
    assert tick(again, epochs(60), []) == [60]


def test_an_epoch_before_those_that_an_edge_gave_is_nothing() -> None:
    merge = merge_of(2)
    assert tick(merge, epochs(9, 3), epochs(5)) == [5]
    assert tick(merge, [], epochs(9)) == [9]


def test_the_state_has_the_epochs_and_which_edges_are_idle() -> None:
    merge = merge_of(3)
    assert merge.delta() == Delta(whole=True)
    merge.set_idle_inputs([BUSY, BUSY, IDLE])
    tick(merge, epochs(9), epochs(5), [])
    assert merge.delta().changed == {0: 9, 1: 5, "merged": 5, "idle": (0, 0, 1)}
    assert not merge.delta()
    merge.set_idle_inputs([BUSY, BUSY, BUSY])
    tick(merge, epochs(10), [], [])
    assert merge.delta() == Delta({0: 10}, frozenset({"idle"}))


def test_epochs_that_cannot_be_compared_are_named() -> None:
    merge = merge_of(2)
    with pytest.raises(OperatorError, match="operator 'merge' failed: epochs of its inputs can't be compared"):
        tick(merge, epochs("now"), epochs(5))


def test_a_union_of_times_of_two_types_names_both_and_the_cure() -> None:
    def timed(provider: StreamProvider, name: str, at: Any, bound: Any) -> Any:
        stream = provider.new_stream().source(name, SingleIteratorSource([1, 2]))
        stamped = stream.assign_timestamps(f"{name} times", lambda msg: at(msg.value))
        return stamped.generate_epochs(f"{name} epochs", limit_out_of_orderness(bound))[0]

    def build(provider: StreamProvider) -> None:
        numbers = timed(provider, "numbers", lambda value: value, 0)
        days = timed(provider, "days", lambda value: datetime(2026, 1, value), timedelta(0))
        numbers.union(days, name="both").sink("sink", VecSink())

    with pytest.raises(
        OperatorError,
        match=r"operator 'both' failed: .* input 1 has the epoch 1, of type int, input 2 has the epoch "
        r"datetime\.datetime\(2026, .*, a datetime without a zone; set .* by \.assign_timestamps\(\)",
    ):
        SingleThreadRuntime(build).execute()


def program(*, timed: bool) -> list[bool]:
    """Return, for each exchange, whether it merges its inputs by time."""
    graph = Graph()
    keyed = StreamProvider(graph).new_stream().source("numbers", SingleIteratorSource([1]))
    first = keyed.key_distribute("first", lambda msg: msg.value)
    if timed:
        first, _late = first.generate_epochs("epochs", lambda msg, _epoch: msg.timestamp)
    first.key_distribute("second", lambda msg: msg.value)
    made = compile_graph(graph)
    steps = [step for stage in made.stages for step in stage.steps]
    return [step.timed for step in steps if isinstance(made.vertices[step.vertex].node, ExchangeNode)]


def test_exchanges_before_generated_epochs_are_merged_in_turn() -> None:
    assert program(timed=False) == [False, False]
    assert program(timed=True) == [True, False]


@pytest.mark.parametrize(("in_turn", "expected"), [(True, [1, 4, 2, 5, 3]), (False, [1, 2, 3, 4, 5])])
def test_records_without_epochs_are_taken_in_turn(in_turn: bool, expected: list[int]) -> None:
    merge = Merge(OperatorContext("merge"), 2, in_turn=in_turn)
    edges = [[Batch(None, [1, 2], [1, 2]), Batch(None, [3], [3])], [Batch(None, [4, 5], [4, 5])]]
    assert [value for (batch,) in merge.run(edges) for value in batch.values] == expected


def test_epochs_alone_do_not_need_the_library_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "malflow.columns.merging", None)
    merge = merge_of(2)
    edges = [[Batch(None, (), (), [(0, 5)])], [Batch(None, (), (), [(0, 7)])]]
    assert [list(batch.epochs) for (batch,) in merge.run(edges)] == [[(0, 5)]]
