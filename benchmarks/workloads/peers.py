"""The parts that the peers share: a source, a sink that adds up, and the start of a workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow, Stream
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from malflow import SingleThreadRuntime
from malflow import Stream as MalflowStream
from malflow.sinks import StatelessSink
from malflow.sources import SingleIteratorSource, StatelessSource

__all__ = ["Workload", "run_bytewax", "run_malflow"]


@dataclass(frozen=True, slots=True)
class Workload:
    """One job, done by each peer. A peer takes the records and gives the sum of all values it emitted.

    Attributes:
        letter: what it is called on the command line.
        title: what it is called in the table.
        size: how many records it has at scale 1.
        make: makes that many records, or about as many.
        malflow: the dataflow.
        loop: a plain loop that makes the message that the callbacks take, as one would.
        tight_loop: the same with one message that is used again and again.
        bytewax: the same dataflow; its second argument is the size of the source's batches.
        count: counts the records as the table does.
    """

    letter: str
    title: str
    size: int
    make: Callable[[int], Sequence[Any]]
    malflow: Callable[[Sequence[Any]], int]
    loop: Callable[[Sequence[Any]], int]
    tight_loop: Callable[[Sequence[Any]], int]
    bytewax: Callable[[Sequence[Any], int], int]
    count: Callable[[Sequence[Any]], int] = len


class Total:
    """A sink for malflow that adds up the values."""

    def __init__(self) -> None:
        self.total = 0

    def sink(self, msg: Any) -> None:
        """Add one."""
        self.total += msg.value

    def sink_batch(self, keys: Sequence[Any], values: Sequence[int], timestamps: Sequence[Any]) -> None:
        """Add a column."""
        del keys, timestamps
        self.total += sum(values)


def run_malflow(records: Sequence[Any], build: Callable[[MalflowStream[Any, Any, Any]], Any]) -> int:
    """Stream the records through what `build` appends to a source, and add up what comes out."""
    total = Total()

    def build_dataflow(provider: Any) -> None:
        stream = provider.new_stream().source("records", StatelessSource(SingleIteratorSource(records)))
        build(stream).sink("total", StatelessSink(total))

    SingleThreadRuntime(build_dataflow).execute()
    return total.total


class _Batches(StatelessSourcePartition[Any]):
    def __init__(self, records: Sequence[Any], batch_size: int) -> None:
        self._records = iter(records)
        self._batch_size = batch_size

    def next_batch(self) -> list[Any]:
        batch = list(islice(self._records, self._batch_size))
        if not batch:
            raise StopIteration
        return batch


class _Source(DynamicSource[Any]):
    """The cheapest source there can be: bytewax's own `TestingSource` looks at each record."""

    def __init__(self, records: Sequence[Any], batch_size: int) -> None:
        self._partition = _Batches(records, batch_size)

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Batches:
        del step_id, worker_index, worker_count
        return self._partition


class _Adder(StatelessSinkPartition[tuple[str, int]]):
    def __init__(self) -> None:
        self.total = 0

    def write_batch(self, items: list[tuple[str, int]]) -> None:
        self.total += sum(map(itemgetter(1), items))


class _Sink(DynamicSink[tuple[str, int]]):
    def __init__(self) -> None:
        self.adder = _Adder()

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Adder:
        del step_id, worker_index, worker_count
        return self.adder


def run_bytewax(records: Sequence[Any], batch_size: int, build: Callable[[Stream[Any]], Stream[Any]]) -> int:
    """Stream the records through what `build` appends to a source, and add up the second half of what comes out."""
    flow, sink = Dataflow("flow"), _Sink()
    op.output("total", build(op.input("records", flow, _Source(records, batch_size))), sink)
    run_main(flow)
    return sink.adder.total
