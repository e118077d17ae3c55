"""Sums of integers in windows, aggregated before they are sent, and not: on Spark, and what a record takes without."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import Any

from workloads.spark_flow import Forget, Numbers, NumbersPartition, key_of, measure_dataflow

from malflow import StreamProvider, agg, limit_out_of_orderness
from malflow.engine.compiler import compile_graph
from malflow.event_time.tick import Tick
from malflow.graph import Graph
from malflow.operators.windows.time_windows import WindowAggregate
from malflow.runtime.spark.session.session import leave_session, make_session
from malflow.runtime.transport.chunks import Chunk, ChunkBuffer
from malflow.sinks import StatelessSink
from malflow.sources import StatefulSource
from malflow.testing.driven import DrivenRun
from malflow.windows import tumbling

__all__ = ["measure_rate", "measure_work"]

_WINDOW = 4_000_000
_WARM_UP = 10.0
_SECONDS = 8.0
_TICKS = 6
_POLL = 8_192


class Skewed(Numbers):
    """Numbers of which nine in ten are 0."""

    def build_part(self, part: int, state: int | None) -> NumbersPartition:
        """Return a reader of the part."""
        made = super().build_part(part, state)
        made._numbers = [number if at % 10 == 0 else 0 for at, number in enumerate(made._numbers)]  # noqa: SLF001
        return made


def measure_rate(keys: int, workers: int, skewed: int, before: int) -> dict[str, float]:
    """Return the records a second of sums in windows, whose integers are promised or not, and the processor time."""
    session, _ = make_session()
    found = measure_dataflow(
        _sums(keys, workers, skewed=skewed, before=before), session, keys, workers, _WARM_UP, _SECONDS
    )
    leave_session()
    return {"rate": found.rate, "cpu": 1e9 * found.cpu / found.records}


def measure_work(keys: int, workers: int, skewed: int, before: int, polls: int) -> dict[str, float]:
    """Return what a record takes if a tick has so many polls, in one process, packed as between processes.

    Returns:
        ``bytes`` that are sent; ``ns`` of processor time; ``longest``: those of the sender and the receiver that take
        longest, which is the time if each worker has a core of its own.
    """
    graph = Graph()
    _sums(keys, workers, skewed=skewed, before=True)(StreamProvider(graph))
    run = DrivenRun(compile_graph(graph), parallelism=workers)
    for worker in () if before else run.stages[0]:
        worker._output._locals.clear()  # noqa: SLF001 - there is no option that others could use
    for operator in () if before else chain.from_iterable(it.operators for it in run.stages[1]):
        if isinstance(operator, WindowAggregate):
            operator._merges = False  # noqa: SLF001 - as above
    run.open()
    found: Counter[str] = Counter()
    with run:
        for number in range(_TICKS):
            tick = replace(run.ticks.begin(), limit=_POLL)
            took = _carry(run, tick, polls)
            if number >= _TICKS // 3:
                found.update(took)
    return {name: found[name] / found["records"] for name in ("bytes", "ns", "longest")}


def _carry(run: DrivenRun, tick: Tick, polls: int) -> dict[str, int]:
    """Carry a tick with several polls through both stages, and return what it takes."""
    senders, receivers = run.stages
    sent: list[list[list[Chunk]]] = []
    sending, receiving, records = [], [], 0
    for worker in senders:
        began = time.process_time_ns()
        buffers = [ChunkBuffer("sums") for _ in senders]
        for at in range(polls):
            for buffer, batches in zip(buffers, worker.run({}, tick, ends=at + 1 == polls)[0], strict=True):
                buffer.add(batches)
            records += sum(source.polled for source in worker.sources)
        sent.append([buffer.take() for buffer in buffers])
        sending.append(time.process_time_ns() - began)
    for at, worker in enumerate(receivers):
        began = time.process_time_ns()
        worker.run({0: [[chunk.batch() for chunk in by_target[at]] for by_target in sent]}, tick)
        receiving.append(time.process_time_ns() - began)
    size = sum(len(chunk.data) for by_target in sent for chunks in by_target for chunk in chunks)
    took = sum(sending) + sum(receiving)
    return {"records": records, "bytes": size, "ns": took, "longest": max(sending) + max(receiving)}


def _sums(keys: int, workers: int, *, skewed: bool, before: bool) -> Any:
    def build_dataflow(provider: StreamProvider) -> None:
        source = (Skewed if skewed else Numbers)(keys, workers)
        timed = provider.new_stream().source("numbers", StatefulSource(source))
        timed = timed.assign_timestamps("at", lambda msg: workers * msg.timestamp)
        on_time, _ = timed.generate_epochs("epochs", limit_out_of_orderness(3_000), every=1_000)
        total = agg.sum(of=int) if before else agg.sum()
        sums = on_time.key_distribute("key", key_of).window(tumbling(_WINDOW)).aggregate("sum", agg.count(), total)
        sums.sink("forget", StatelessSink(Forget()))

    return build_dataflow
