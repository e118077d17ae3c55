"""Operators that report their own counters, unknown to the runtimes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from malflow import StreamProvider
from malflow.events import TickFinished
from malflow.nodes import StatelessNode
from malflow.operators.contract import Counts, Operator, OperatorContext
from malflow.records.batch import Batch
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.states.keyed import KeyedState
from malflow.states.kinds import StateKind
from malflow.testing import PAUSE, ScriptedSource
from tests.conformance.dataflow import sis


class CountKeys(Operator):
    """Pass records on; count the even ones, and show how many keys there are."""

    state: KeyedState
    COUNTS = Counts(counters=("even",), gauges=("keys",))

    def __init__(self, context: OperatorContext) -> None:
        super().__init__(context)
        self.state = KeyedState(tracked=context.tracked, admit=context.admit)
        self._even = 0

    def process(self, batch: Batch) -> Sequence[Batch]:
        self._even += sum(value % 2 == 0 for value in batch.values)
        self.state.assign(dict.fromkeys(batch.keys or (), 1))
        return (batch,)

    def take_counts(self) -> Mapping[str, int]:
        even, self._even = self._even, 0
        return {"even": even}

    def gauges(self) -> Mapping[str, int]:
        return {"keys": len(self.state)}


def count_keys(stream: Any, name: str) -> Any:
    return stream._stateful(name, CountKeys, StateKind.STATEFUL_OP, 1, None, counts=CountKeys.COUNTS)


class Looks:
    """A listener that looks at the counts after each tick."""

    def __init__(self) -> None:
        self.runtime: Any = None
        self.seen: list[dict[str, int]] = []

    def on_event(self, event: object) -> None:
        if isinstance(event, TickFinished):
            self.seen.append(self.runtime.progress.counts["counted"])


def test_progress_has_what_an_operator_counts_and_measures(any_parallelism: Any) -> None:
    looks = Looks()

    def build(provider: StreamProvider) -> None:
        parts = {"a": [1, 2, 4, 7, PAUSE, 2], "b": [2, 12, PAUSE, PAUSE, 21]}
        keyed = provider.new_stream().source("numbers", ScriptedSource(parts)).key_distribute("digit", last_digit)
        count_keys(keyed, "counted").sink("sink", VecSink())

    looks.runtime = any_parallelism(build, listeners=[looks])
    looks.runtime.execute()
    assert looks.seen[-1] == {"even": 5, "keys": 4}
    for name in ("even", "keys"):
        numbers = [counts[name] for counts in looks.seen]
        assert numbers == sorted(numbers)
    assert looks.runtime.progress.counts == {"counted": looks.seen[-1]}
    assert looks.runtime.progress.patterns == {}


def last_digit(message: Any) -> int:
    digit: int = message.value % 10
    return digit


def test_late_records_are_among_the_counts(runtime: Any) -> None:
    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", sis([5, 3, 9]))
        stamped = numbers.assign_timestamps("time", lambda msg: msg.value)
        stamped.generate_epochs("epochs", lambda msg, _: msg.value)[0].sink("sink", VecSink())

    handle = runtime(build).start()
    handle.await_termination()
    assert handle.progress.counts == {"epochs": {"late": 1}}
    assert handle.progress.late == {"epochs": 1}


def test_an_operator_of_another_kind_of_node_counts_as_well(runtime: Any) -> None:
    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", sis([1, 2, 3]))
        node = StatelessNode("counted", CountKeys, counts=CountKeys.COUNTS)
        numbers._at(numbers._append(node)).sink("sink", VecSink())

    handle = runtime(build).start()
    handle.await_termination()
    assert handle.progress.counts == {"counted": {"even": 1, "keys": 0}}


def test_records_taken_and_given_by_each_operator(any_parallelism: Any, tmp_path: Path) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource([*range(1, 31), PAUSE, *range(31, 61)]))
        on_time, late = numbers.generate_epochs("epochs", lambda msg, _: msg.value if msg.value % 10 == 0 else None)
        small, _, large = late.union(on_time, name="all").split("size", by_size, 3)
        keyed = small.flat_map("twice", lambda value: [value, -value]).key_distribute("last digit", last_digit)
        keyed.stateful_map("sum", lambda _, value, state: (state + value, state + value), default=int).sink(
            "sums", VecSink()
        )
        large.filter("none", lambda _: False)

    runtime = any_parallelism(build_dataflow, FsspecBackend(str(tmp_path)))
    runtime.execute()
    progress = runtime.progress
    found = {name: (it.taken, it.given) for name, it in progress.operators.items()}
    assert found == {
        "numbers": (60, (60,)),
        "epochs": (60, (55, 5)),
        "all": (60, (60,)),
        "size": (60, (20, 0, 40)),
        "twice": (20, (40,)),
        "last digit": (40, (40,)),
        "sum": (40, (40,)),
        "sums": (40, ()),
        "none": (40, (0,)),
    }
    assert progress.operators["sum"].keys == 10
    assert progress.operators["twice"].keys is None
    assert progress.status == "ended"
    assert progress.started is not None
    assert progress.started <= progress.at
    last = progress.last_snapshot
    assert last is not None
    assert (last.id, last.keys) == (progress.snapshot, sum(size.keys for size in progress.states.values()))
    assert last.at is not None
    assert progress.started <= last.at <= progress.at
    assert last.bytes is not None
    assert last.bytes > 0
    assert last.capture_seconds is not None
    assert last.write_seconds is not None


def by_size(message: Any, outputs: list[bool]) -> None:
    outputs[0 if message.value <= 20 else 2] = True


def test_facts_of_each_operator(any_parallelism: Any) -> None:
    """Sixteen calls of 10 ms are measured; a source with two parts is polled until both have ended."""

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource({"a": [*range(8)], "b": [*range(8)]}))
        keyed = numbers.key_distribute("key", lambda msg: msg.value % 4)
        keyed.map("slow", slowly).sink("sink", VecSink())

    runtime = any_parallelism(build_dataflow)
    assert runtime.progress.operators == {}
    runtime.execute()
    progress = runtime.progress
    numbers, slow, sink = (progress.operators[name] for name in ("numbers", "slow", "sink"))
    workers = len(slow.workers_taken.by_worker)
    assert workers == progress.parallelism
    assert sum(slow.workers_taken.by_worker) == slow.taken == 16
    assert slow.workers_taken.greatest == max(slow.workers_taken.by_worker)
    assert slow.workers_taken.mean * workers == 16
    assert sum(slow.workers_busy.by_worker) == pytest.approx(slow.busy)
    assert slow.busy >= 0.16
    assert numbers.busy + sink.busy < slow.busy
    assert 1 <= slow.batches <= 16
    assert 1 <= numbers.batches <= numbers.polls
    assert 0 <= numbers.saturated_polls <= numbers.polls
    assert (slow.polls, slow.failed, slow.retries) == (0, None, None)


def slowly(value: int) -> int:
    time.sleep(0.01)
    return value


class SlowSink(VecSink[Any, Any, Any]):
    """A sink that is slow to flush."""

    def flush(self) -> None:
        time.sleep(0.03)


def test_busy_time_of_sinks(any_parallelism: Any) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("numbers", sis([1, 2, 3])).map("same", abs).sink("slow", SlowSink())

    runtime = any_parallelism(build_dataflow)
    runtime.execute()
    operators = runtime.progress.operators
    assert operators["slow"].busy >= 0.03
    assert operators["same"].busy < operators["slow"].busy
