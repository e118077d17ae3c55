"""Measure what a record costs on its way from one worker to another, by what it is and who reads it.

pip install 'malflow[processes]'
python benchmarks/exchange.py [--rounds 5] [--records 200000] [--workers 2]

All workers are in one process, so that nothing waits; the batches between them are packed and unpacked as between
processes. Each column is processor time for each record of the input, also for those that stay: routing with the choice
of fields and epochs, packing, unpacking, and merging.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from process_parts.inputs import note_of
from tables import print_table

from malflow import StreamProvider, agg
from malflow.engine.compiler import compile_graph
from malflow.engine.plan import Program, Stage
from malflow.engine.stage_operators import OutputChannels
from malflow.engine.workers import Workers
from malflow.event_time.tick import Tick
from malflow.graph import Graph
from malflow.operators.routing import Merge
from malflow.runtime.transport.chunks import ChunkBuffer
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.sources import StatelessSource, StatelessSourceImpl, StatelessSourcePartition
from malflow.windows import tumbling

_PARTS = 4
_MINUTE = 60_000
_TARGET = 350
"""Nanoseconds that a record may take in all."""

_STEPS = ("route", "pack", "unpack", "merge")


@dataclass
class Note:
    """A record as an object."""

    at: int
    town: str
    people: int
    note: str


def _wide(number: int) -> dict[str, Any]:
    return {**note_of(number), **{f"field {index}": number + index for index in range(16)}}


_RECORDS: Mapping[str, Callable[[int], Any]] = {
    "dicts": note_of,
    "dicts of 20 fields": _wide,
    "objects": lambda number: Note(**note_of(number)),
    "tuples": lambda number: tuple(note_of(number).values()),
}


def _by_fields(keyed: Any) -> Any:
    return keyed.window(tumbling(_MINUTE)).aggregate("people", agg.count(), agg.sum("people"))


def _by_functions(keyed: Any) -> Any:
    return keyed.window(tumbling(_MINUTE)).aggregate("people", agg.count(), agg.sum(_people_of))


def _by_calls(keyed: Any) -> Any:
    return keyed.window(tumbling(_MINUTE)).aggregate("people", agg.count(), agg.sum(_people_called))


def _running(keyed: Any) -> Any:
    return keyed.stateful_map("people", lambda _town, note, total: (total + 1, total + 1), default=int)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "windows, fields": _by_fields,
    "windows, functions": _by_functions,
    "windows, functions that call": _by_calls,
    "stateful_map": _running,
}


def _people_of(note: Any) -> Any:
    return note["people"]


def _people_called(note: Any) -> Any:
    return int(note[2] if type(note) is tuple else note["people"] if type(note) is dict else note.people)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each program runs")
    parser.add_argument("--records", type=int, default=200_000, help="how many records it has")
    parser.add_argument("--workers", type=int, default=2, help="how many workers send them to each other")
    options = parser.parse_args()
    rows = []
    for records, reader, every in _programs():
        rounds = [_measure(records, reader, every, options.records, options.workers) for _ in range(options.rounds)]
        cells = [median(round_[step] for round_ in rounds) for step in _STEPS]
        epochs = "each second" if every else "each record"
        rows.append((f"{records}, {reader}", epochs, *(f"{it:,.0f}" for it in cells), f"{sum(cells):,.0f}"))
    print(f"\nprocessor time, ns a record, {options.workers} workers, medians; in all at most {_TARGET}\n")
    print_table(("records and their reader", "epochs", *_STEPS, "sum"), rows)


def _programs() -> Iterator[tuple[str, str, bool]]:
    for reader in _READERS:
        for every in (False, True):
            yield "dicts", reader, every
    yield "dicts of 20 fields", "windows, functions", False
    yield "dicts of 20 fields", "windows, functions that call", False
    for records in ("objects", "tuples"):
        yield records, "windows, functions that call", False


def _measure(records: str, reader: str, every: bool, count: int, workers: int) -> dict[str, float]:
    """Return the nanoseconds of each step for a record."""
    parts = [[(number, _RECORDS[records](number)) for number in range(at, count, _PARTS)] for at in range(_PARTS)]
    program = _compiled(parts, _READERS[reader], every=every)
    spent: dict[str, int] = defaultdict(int)
    running = Workers(program, parallelism=workers, tracked=False)
    running.open()

    def exchange(stage: Stage, sent: Any) -> None:
        for channel in stage.outputs:
            for sender, by_target in enumerate(sent[channel.number]):
                for target, batches in enumerate(by_target):
                    if target != sender and batches:
                        by_target[target] = _moved(batches, channel.name, spent)

    with _timed(OutputChannels, "send", "route", spent), _timed(Merge, "run", "merge", spent):
        for _ in range(2 * count // _PARTS):
            running.run(Tick(limit=8_192), exchange)
            if not running.live:
                break
    running.close()
    return {step: spent[step] / count for step in _STEPS}


def _moved(batches: Sequence[Any], operator: str, spent: dict[str, int]) -> list[Any]:
    """Pack and unpack batches."""
    began = time.process_time_ns()
    buffer = ChunkBuffer(operator)
    buffer.add(batches)
    chunks = buffer.take()
    packed = time.process_time_ns()
    arrived = [chunk.batch(operator) for chunk in chunks]
    spent["pack"] += packed - began
    spent["unpack"] += time.process_time_ns() - packed
    return arrived


@contextmanager
def _timed(kind: Any, method: str, step: str, spent: dict[str, int]) -> Iterator[None]:
    """Add the time of a method, or of the generator that it returns."""
    original = getattr(kind, method)

    def timed(self: Any, *arguments: Any) -> Any:
        began = time.process_time_ns()
        found = original(self, *arguments)
        found = list(found) if found is not None else None
        spent[step] += time.process_time_ns() - began
        return found

    setattr(kind, method, timed)
    try:
        yield
    finally:
        setattr(kind, method, original)


# The dataflow


class _Numbers(StatelessSourceImpl[int, Any, int]):
    """Records in memory, in some parts."""

    def __init__(self, parts: Sequence[Sequence[tuple[int, Any]]]) -> None:
        self._parts = parts

    def list_parts(self) -> Sequence[int]:
        """Return the numbers of the parts."""
        return range(len(self._parts))

    def build_part(self, part: int) -> _Part:
        """Open a part."""
        return _Part(self._parts[part])


class _Part(StatelessSourcePartition[Any, int]):
    def __init__(self, records: Sequence[tuple[int, Any]]) -> None:
        self._records = records
        self._next = 0

    def poll_batch(self, limit: int) -> tuple[Sequence[Any], Sequence[int]]:
        """Return the next values and their timestamps."""
        some = self._records[self._next : self._next + limit]
        self._next += len(some)
        return [value for _, value in some], [at for at, _ in some]

    def poll(self) -> tuple[Any, int] | None:
        """Return nothing: batches are polled."""
        return None

    def is_finished(self) -> bool:
        """Return whether all were polled."""
        return self._next >= len(self._records)


class _Forget(StatelessSinkImpl[Any, Any, Any]):
    def sink(self, msg: Any) -> None:
        """Do nothing."""


def _compiled(parts: Sequence[Any], read: Callable[[Any], Any], *, every: bool) -> Program:
    graph = Graph()
    stream = StreamProvider(graph).new_stream().source("notes", StatelessSource(_Numbers(parts)))
    bound = {"out_of_orderness": 100, **({"every": 1_000} if every else {})}
    timed = stream.event_time("times", lambda msg: msg.timestamp, **bound)
    keyed = timed.key_distribute("town", lambda msg: msg.timestamp * 7919 % 1_000)
    read(keyed).sink("forget", StatelessSink(_Forget()))
    return compile_graph(graph)


if __name__ == "__main__":
    main()
