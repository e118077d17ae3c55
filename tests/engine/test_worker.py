"""Workers hosted by hand: a runtime on another machine runs a program that was sent to it."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from time import perf_counter_ns
from types import FrameType
from typing import Any

import cloudpickle

from malflow.engine.compiler import compile_graph
from malflow.engine.plan import Program
from malflow.engine.worker import Worker
from malflow.event_time.tick import Tick
from malflow.graph import Graph
from malflow.sinks import StatelessSink
from malflow.sources import SingleIteratorSource, StatelessSource
from malflow.streams.stream import StreamProvider

WORKERS = 2
SEEN: list[Any] = []


class Remember:
    """A sink that remembers in this module, wherever its copy is."""

    def sink(self, msg: Any) -> None:
        SEEN.append((msg.key, msg.value))


def program_of(items: list[int]) -> Program:
    """Build a dataflow of lambdas with one exchange, and send it through bytes."""
    graph = Graph()
    numbers = StreamProvider(graph).new_stream().source("numbers", SingleIteratorSource(items))
    sums = numbers.key_distribute("key", lambda msg: msg.value % 5).stateful_map(
        "sum", lambda key, value, state: (state + value, state + value), default=int
    )
    sums.sink("remember", StatelessSink(Remember()))  # type: ignore[arg-type]
    return pickle.loads(cloudpickle.dumps(compile_graph(graph)))


def workers_of(program: Program) -> list[list[Worker]]:
    """Make the workers of both stages; the first worker holds the only part."""
    parts = {"numbers": [program.sources["numbers"].source.impl.list_parts(), []]}
    return [
        [Worker(program, stage, at, parallelism=WORKERS, parts=parts, tracked=True) for at in range(WORKERS)]
        for stage in range(len(program.stages))
    ]


def run_ticks(stages: list[list[Worker]]) -> None:
    """Carry ticks through both stages until the source ends, packing what passes between them into bytes."""
    for worker in stages[0]:
        worker.open()
    while not all(source.is_finished for worker in stages[0] for source in worker.sources):
        sent = [pickle.loads(pickle.dumps(worker.run({}))) for worker in stages[0]]
        for worker in stages[1]:
            worker.run({0: [outputs[0][worker.worker_id] for outputs in sent]})


def test_a_program_travels_and_its_workers_need_no_runtime() -> None:
    SEEN.clear()
    stages = workers_of(program_of(list(range(20))))
    assert len(stages) == 2
    run_ticks(stages)
    totals = {key: max(value for at, value in SEEN if at == key) for key in range(5)}
    assert totals == {key: sum(range(key, 20, 5)) for key in range(5)}
    assert all(worker.run({0: [[], []]}) == {} for worker in stages[1])


def test_deltas_bring_another_worker_to_the_same_state() -> None:
    SEEN.clear()
    first = workers_of(program_of([1, 2, 3, 6]))
    run_ticks(first)
    second = workers_of(program_of([1, 2]))
    for old, new in zip(first[1], second[1], strict=True):
        new.states.apply(pickle.loads(pickle.dumps(old.states.deltas())))
        assert not old.states.deltas()
    SEEN.clear()
    run_ticks(second)
    assert sorted(SEEN) == [(1, 1 + 6 + 1), (2, 2 + 2)]


class Wrapped:
    """A reader of somebody else's that counts the polls; it has no position."""

    def __init__(self, reader: Any) -> None:
        self.reader, self.polls = reader, 0

    def poll(self) -> Any:
        self.polls += 1
        answer = self.reader.poll()
        return answer and ((answer[0], self.polls), answer[1])

    def is_finished(self) -> bool:
        return bool(self.reader.is_finished())


class Wrapping(SingleIteratorSource[Any]):
    """A built-in source whose readers are not its own."""

    def build_part(self, part: Any) -> Any:
        return Wrapped(super().build_part(part))


class Bookmarked:
    """A source whose readers resume from bytes."""

    def list_parts(self) -> list[str]:
        return ["book"]

    def build_part(self, part: str) -> Any:
        return self.resume_part(part, b"0")

    def resume_part(self, part: str, position: bytes) -> Any:
        return Book(int(position))


class Book:
    def __init__(self, page: int) -> None:
        self.page = page

    def poll(self) -> tuple[int, int]:
        self.page += 1
        return self.page, self.page

    def is_finished(self) -> bool:
        return self.page == 5

    def position(self) -> bytes:
        return str(self.page).encode()


def values_moving_each_tick(source: Any) -> list[Any]:
    """Return the values of a source whose worker is rebuilt for each tick, from its deltas alone."""
    SEEN.clear()
    graph = Graph()
    StreamProvider(graph).new_stream().source("source", StatelessSource(source)).sink(
        "remember", StatelessSink(Remember())
    )  # type: ignore[arg-type]
    program = compile_graph(graph)
    deltas: list[Any] = []
    while True:
        parts = {"source": [list(source.list_parts())]}
        worker = Worker(program, 0, 0, parallelism=1, parts=parts, tracked=True, pickle_reader=cloudpickle.dumps)
        for delta in deltas:
            worker.states.apply(delta)
        worker.open()
        worker.run({})
        if worker.sources[0].is_finished:
            return [value for _, value in SEEN]
        deltas.append(pickle.loads(pickle.dumps(worker.states.deltas())))


def test_reader_without_a_position_moves_as_it_is() -> None:
    assert values_moving_each_tick(SingleIteratorSource(["a", "b", "c"])) == ["a", "b", "c"]
    assert values_moving_each_tick(Wrapping(["a", "b", "c"])) == [("a", 1), ("b", 2), ("c", 3)]


def test_a_position_may_be_bytes() -> None:
    assert values_moving_each_tick(Bookmarked()) == [1, 2, 3, 4, 5]


def test_nothing_is_counted_per_record() -> None:
    """The engine's functions and the clock are called as often for many records as for few."""

    def calls(records: int) -> Counter[str]:
        graph, counted = Graph(), Counter[str]()
        numbers = StreamProvider(graph).new_stream().source("numbers", SingleIteratorSource(range(records)))
        numbers.map("double", abs).filter("all", bool).map("again", abs)
        program = compile_graph(graph)
        parts = {"numbers": [[*program.sources["numbers"].source.impl.list_parts()]]}
        worker = Worker(program, 0, 0, parallelism=1, parts=parts)
        worker.open()
        tick = Tick(limit=10_000)

        def note(frame: FrameType, event: str, what: Any) -> None:
            if event == "call" and "/malflow/engine/" in frame.f_code.co_filename:
                counted[frame.f_code.co_qualname] += 1
            elif event == "c_call" and what is perf_counter_ns:
                counted["clock"] += 1

        sys.setprofile(note)
        try:
            worker.run({}, tick)
            facts = worker.reports.take(tick).facts
        finally:
            sys.setprofile(None)
        assert facts["numbers"].largest == records
        assert {name: (it.batches, it.largest) for name, it in facts.items()}["again"][0] == 1
        return counted

    few = calls(10)
    assert few["clock"] == 5, "at the beginning, and after each operator"
    assert calls(5_000) == few
