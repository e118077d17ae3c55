"""The sources, with Malstrom's cases."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from malflow import MAX, StreamProvider
from malflow.sinks import StatelessSink, VecSink
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition, StatelessSource
from tests.conformance.dataflow import epochs_of, messages_of, sis, values_of
from tests.kit.log import Log


class Counting:
    """Counts from where it was to `last`; finished only when that was kept in a snapshot, as in Malstrom's test."""

    def __init__(self, last: int) -> None:
        self.last = last

    def list_parts(self) -> list[str]:
        return ["counter"]

    def build_part(self, part: str, state: int | None) -> CountingPartition:
        return CountingPartition(state or 0, self.last)


class CountingPartition:
    """Duck-typed: nothing but the methods."""

    def __init__(self, following: int, last: int) -> None:
        self.following = following
        self.last = last
        self.kept = -1

    def poll(self) -> tuple[int, int] | None:
        if self.following > self.last:
            return None
        self.following += 1
        return self.following - 1, self.following - 1

    def is_finished(self) -> bool:
        return self.kept > self.last

    def snapshot(self) -> int:
        self.kept = self.following
        return self.following

    def collect(self) -> int:
        return self.snapshot()


class Lettered:
    """Parts with names: each gives (part, index) twice."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def list_parts(self) -> list[Any]:
        return self.parts

    def build_part(self, part: Any) -> LetteredPartition:
        return LetteredPartition(part)


class LetteredPartition:
    def __init__(self, part: Any) -> None:
        self.left = [(part, 0), (part, 1)]

    def poll(self) -> Any:
        return self.left.pop(0)

    def is_finished(self) -> bool:
        return not self.left


def test_the_iterator_source_emits_values(any_parallelism: Any) -> None:
    assert values_of(any_parallelism, list(range(100)), lambda s: s) == list(range(100))


def test_the_iterator_source_counts_time_from_zero(any_parallelism: Any) -> None:
    assert [m.timestamp for m in messages_of(any_parallelism, range(42, 52), lambda s: s)] == list(range(10))


def test_the_end_is_one_max_epoch(runtime: Any, log: Log) -> None:
    assert epochs_of(runtime, range(10), lambda s: s, log) == [MAX]


def test_every_worker_sees_the_end_once(runtime: Any, log: Log) -> None:
    inspect = lambda s: s.inspect_frontier("f", lambda epoch, ctx: log.append((ctx.worker_id, epoch)))  # noqa: E731
    values_of(lambda build: runtime(build, parallelism=3), range(10), inspect)
    assert sorted(log) == [(0, MAX), (1, MAX), (2, MAX)]


def test_a_stateful_source_goes_on_where_the_last_run_was_kept(any_parallelism: Any, store: Any) -> None:
    outputs = []
    for last in (10, 15):
        collected: VecSink[Any, Any, Any] = VecSink()

        def build_dataflow(provider: StreamProvider, last: int = last, collected: Any = collected) -> None:
            stream = provider.new_stream().source("counting", StatefulSource(Counting(last)))
            stream.sink("sink", StatelessSink(collected))

        any_parallelism(build_dataflow, store, timedelta(milliseconds=5)).execute()
        outputs.append(collected.values)
    assert outputs == [list(range(11)), list(range(11, 16))]


class Columns(StatefulSourcePartition[int, int, int]):
    """A reader with `poll_batch` alone, which inherits an abstract `poll`."""

    def __init__(self, place: int) -> None:
        self.place = place

    def poll_batch(self, limit: int) -> tuple[list[int], list[int]]:
        numbers = list(range(self.place, min(self.place + limit, 5)))
        self.place += len(numbers)
        return numbers, numbers

    def is_finished(self) -> bool:
        return self.place >= 5

    def snapshot(self) -> int:
        return self.place


class OfColumns(StatefulSourceImpl[str, int, int, int]):
    def list_parts(self) -> list[str]:
        return ["a"]

    def build_part(self, part: str, state: int | None) -> Columns:
        return Columns(state or 0)


def test_reader_that_inherits_poll_may_have_poll_batch_alone(runtime: Any) -> None:
    collected: VecSink[Any, Any, Any] = VecSink()
    runtime(lambda provider: provider.new_stream().source("columns", OfColumns()).sink("sink", collected)).execute()
    assert collected.values == [0, 1, 2, 3, 4]


def test_a_source_without_parts_ends_at_once(any_parallelism: Any, log: Log) -> None:
    collected: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("none", StatelessSource(Lettered([])))
        stream.inspect_frontier("f", lambda epoch, _: log.append(epoch)).sink("sink", StatelessSink(collected))

    any_parallelism(build_dataflow).execute()
    assert collected.values == []
    assert set(log) == {MAX}


def test_an_empty_iterator_gives_one_max_epoch(runtime: Any, log: Log) -> None:
    assert epochs_of(runtime, [], lambda s: s, log) == [MAX]
    assert values_of(runtime, [], lambda s: s) == []


def test_a_stateful_operator_on_a_source_keeps_state_by_part(any_parallelism: Any) -> None:
    collected: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: Any) -> None:
        (
            provider.new_stream()
            .source("letters", StatelessSource(Lettered(["a", "b", "c"])))
            .stateful_map("count", lambda key, value, count: ((value, count + 1), count + 1), default=int)
            .sink("sink", StatelessSink(collected))
        )

    any_parallelism(build_dataflow).execute()
    assert sorted((m.key, m.value) for m in collected) == [(p, (p, n)) for p in "abc" for n in (1, 2)]


def test_the_parts_of_a_source_are_read_in_turn(runtime: Any) -> None:
    collected: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("letters", StatelessSource(Lettered(["a", "b"])))
        stream.sink("sink", StatelessSink(collected))

    runtime(build_dataflow).execute()
    assert collected.values == ["a", "b", "a", "b"]


def test_two_streams_run_side_by_side(any_parallelism: Any) -> None:
    first, second = VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream()
        provider.new_stream().source("a", sis("ab")).sink("to-a", StatelessSink(first))
        provider.new_stream().source("b", sis(range(20_000))).sink("to-b", StatelessSink(second))

    any_parallelism(build_dataflow).execute()
    assert first.values == ["a", "b"]
    assert second.values == list(range(20_000))
