"""The jobs as dataflows of malflow, on one thread or in processes, and its start and its ticks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from malflow import DataMessage, MultiProcessRuntime, SingleThreadRuntime, StreamProvider, agg
from malflow.events import Event, Listener, TickFinished
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.sources import (
    JsonLinesSource,
    SingleIteratorSource,
    StatefulSource,
    StatefulSourceImpl,
    StatefulSourcePartition,
    StatelessSource,
    StatelessSourceImpl,
    StatelessSourcePartition,
    TextFileSource,
)
from malflow.windows import WindowResult, tumbling
from process_parts.inputs import KEYS, MINUTE, PARTS
from process_parts.marks import Tally, memory_of, note_ready, read_marks

__all__ = ["measure_job", "measure_start", "measure_ticks"]

_NAMES = [f"key-{number}" for number in range(KEYS)]
"""Keys that exist before the run: bytewax takes text only."""

_BOUND = 3_000
_SECOND = 1_000


class Numbers(StatefulSourceImpl[str, int, int, int]):
    """Numbers from 0 in each of 16 parts, read by columns."""

    keyed = False

    def __init__(self, records: int, folder: str) -> None:
        self._share = records // PARTS
        self._folder = folder

    def list_parts(self) -> Iterable[str]:
        """List 16 names."""
        return [f"part-{number}" for number in range(PARTS)]

    def build_part(self, part: str, state: int | None) -> NumbersPart:
        """Continue at a position."""
        del part
        note_ready(self._folder)
        return NumbersPart(self._share, state or 0)


class NumbersPart(StatefulSourcePartition[int, int, int]):
    """The numbers below `end`."""

    def __init__(self, end: int, position: int) -> None:
        self._end = end
        self._position = position

    def poll_batch(self, limit: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the next numbers; their timestamps are the same."""
        start = self._position
        self._position = min(start + limit, self._end)
        return list(range(start, self._position)), range(start, self._position)

    def poll(self) -> tuple[int, int] | None:
        """Return one number."""
        values, timestamps = self.poll_batch(1)
        return (values[0], timestamps[0]) if values else None

    def is_finished(self) -> bool:
        """Whether all numbers were read."""
        return self._position == self._end

    def snapshot(self) -> int:
        """Return how many numbers were read."""
        return self._position


class _Marked:
    """A source of files, with a note of when the first is opened."""

    def __init__(self, paths: Iterable[str], folder: str) -> None:
        super().__init__(paths)  # type: ignore[call-arg] # of the source beside this class
        self._folder = folder

    def build_part(self, part: str, state: Any) -> Any:
        """Return the reader of a file."""
        note_ready(self._folder)
        return super().build_part(part, state)  # type: ignore[misc] # as above


class MarkedFiles(_Marked, JsonLinesSource):
    """JSON lines."""


class MarkedLines(_Marked, TextFileSource):
    """Lines of text."""


class Results(StatelessSinkImpl[Any, Any, Any]):
    """A sink that counts the results; each process has its own."""

    def __init__(self, folder: str, measure: Callable[[Sequence[Any]], tuple[int, float]]) -> None:
        self._tally = Tally(folder)
        self._measure = measure

    def sink(self, msg: Any) -> None:
        """Count one."""
        self.sink_batch([msg.key], [msg.value], [msg.timestamp])

    def sink_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[Any]) -> None:
        """Count a batch."""
        del keys, timestamps
        self._tally.note(*self._measure(values))

    def close(self) -> None:
        """Write the counts."""
        self._tally.write()


def measure_job(job: str, processes: int, records: int, source: Any, folder: str) -> dict[str, Any]:
    """Run a job; return what its processes have noted, and the coordinator's share.

    Args:
        job: its letter.
        processes: the number of worker processes; 0 to run on one thread.
        records: the number of records.
        source: what the job needs to know: see `processes.py`.
        folder: an empty folder for the notes.
    """
    build = _JOBS[job](records, source, folder)
    ticks = _TickListener()
    _runtime(build, processes, ticks).execute()
    mine = {"coordinator": memory_of(), "coordinator_cpu": ticks.cpu} if processes else {}
    return {**asdict(read_marks(folder)), **mine}


class _TickListener(Listener):
    """Notes how many seconds each tick takes, and the processor time of this process after each.

    Attributes:
        seconds: the seconds of each tick.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._cpu: list[float] = []

    def on_event(self, event: Event) -> None:
        """Note the end of a tick."""
        if isinstance(event, TickFinished):
            self.seconds.append(event.seconds)
            self._cpu = [*self._cpu[:1], time.process_time()]

    @property
    def cpu(self) -> float:
        """The processor time from the end of the first tick to that of the last."""
        return self._cpu[-1] - self._cpu[0]


def _runtime(build: Any, processes: int, *listeners: Listener, method: Any = "spawn") -> Any:
    if not processes:
        return SingleThreadRuntime(build, listeners=listeners)
    return MultiProcessRuntime(build, processes=processes, start_method=method, listeners=listeners)


# The jobs


def _sum(records: int, _source: Any, folder: str) -> Any:
    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(Numbers(records, folder)))
        sums = numbers.key_distribute("name", _name_of).stateful_map("sum", _add, default=int)
        sums.sink("results", StatelessSink(Results(folder, _number_of)))

    return build_dataflow


def _name_of(msg: DataMessage[Any, int, Any]) -> str:
    return _NAMES[msg.value % KEYS]


def _add(key: str, value: int, state: int) -> tuple[int, int]:
    return state + value, state + value


def _number_of(values: Sequence[int]) -> tuple[int, float]:
    return len(values), 0.0


def _windows_of_files(_records: int, paths: Sequence[str], folder: str) -> Any:
    def build_dataflow(provider: StreamProvider) -> None:
        notes = provider.new_stream().source("notes", StatefulSource(MarkedFiles(paths, folder)))
        _windowed(notes).sink("results", StatelessSink(Results(folder, _people_in_windows)))

    return build_dataflow


def _windowed(notes: Any) -> Any:
    """Count records and people of each town in each minute."""
    timed = notes.event_time("times", "at", out_of_orderness=_BOUND, every=_SECOND)
    windows = timed.key_distribute("town", "town").window(tumbling(MINUTE))
    return windows.aggregate("people", agg.count(), agg.sum("people"))


def _people_in_windows(values: Sequence[WindowResult[tuple[int, int], int]]) -> tuple[int, float]:
    found = [value.value for value in values]
    return sum([records for records, _ in found]), sum([people for _, people in found])


def _windows_of_topic(_records: int, source: Any, folder: str) -> Any:
    from process_parts.malflow_kafka import MarkedSink, MarkedSource  # noqa: PLC0415 - an extra

    servers, topic, results = source

    def build_dataflow(provider: StreamProvider) -> None:
        notes = provider.new_stream().source("notes", StatefulSource(MarkedSource(topic, servers, folder)))
        rows = _windowed(notes).map_with_key("row", _row_of)
        rows.sink("results", StatelessSink(MarkedSink(results, servers, folder)))

    return build_dataflow


def _row_of(town: str, result: WindowResult[tuple[int, int], int]) -> dict[str, Any]:
    records, people = result.value
    return {"town": town, "start": result.start, "records": records, "people": people}


def _busy(records: int, loops: int, folder: str) -> Any:
    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(Numbers(records, folder)))
        mapped = numbers.map("busy", partial(_work, loops))
        mapped.sink("results", StatelessSink(Results(folder, _sum_of)))

    return build_dataflow


def _work(loops: int, value: int) -> int:
    for _ in range(loops):
        pass
    return value


def _sum_of(values: Sequence[int]) -> tuple[int, float]:
    return len(values), sum(values)


def _windows_by_functions(_records: int, paths: Sequence[str], folder: str) -> Any:
    """Count as a user does who has functions for all, and an epoch for each record."""
    return _counted_by_functions(MarkedLines(paths, folder), folder)


def _topic_by_functions(_records: int, source: Any, folder: str) -> Any:
    """Count the messages of a topic in the same way."""
    from process_parts.malflow_kafka import MarkedSource  # noqa: PLC0415 - an extra

    servers, topic, _ = source
    return _counted_by_functions(MarkedSource(topic, servers, folder, "text"), folder)


def _counted_by_functions(source: Any, folder: str) -> Any:
    def build_dataflow(provider: StreamProvider) -> None:
        notes = provider.new_stream().source("notes", StatefulSource(source)).map("parse", _parse)
        timed = notes.event_time("times", _time_of, out_of_orderness=_BOUND)
        windows = timed.key_distribute("town", _town_of).window(tumbling(MINUTE))
        people = windows.aggregate("people", agg.count(), agg.sum(_people_of))
        people.sink("results", StatelessSink(Results(folder, _people_in_windows)))

    return build_dataflow


def _windows_by_fields(_records: int, paths: Sequence[str], folder: str) -> Any:
    """Count the same by names of fields, with an epoch for each second."""

    def build_dataflow(provider: StreamProvider) -> None:
        notes = provider.new_stream().source("notes", StatefulSource(MarkedLines(paths, folder))).map("parse", _parse)
        _windowed(notes).sink("results", StatelessSink(Results(folder, _people_in_windows)))

    return build_dataflow


def _parse(line: str) -> Any:
    return json.loads(line)


def _time_of(msg: Any) -> Any:
    return msg.value["at"]


def _town_of(msg: Any) -> Any:
    return msg.value["town"]


def _people_of(note: Any) -> Any:
    return note["people"]


_JOBS = {
    "a": _sum,
    "b": _windows_of_files,
    "c": _windows_of_topic,
    "d": _busy,
    "e": _windows_by_functions,
    "f": _windows_by_fields,
    "g": _topic_by_functions,
    "h": _windows_by_functions,
}


# The start, and ticks


class Forget(StatelessSinkImpl[Any, Any, Any]):
    """A sink that does nothing."""

    def sink(self, msg: Any) -> None:
        """Do nothing."""


def measure_start(processes: int, method: str, times: int) -> list[float]:
    """Run an empty dataflow some times; return how many seconds each run took."""

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("nothing", SingleIteratorSource(())).sink("forget", StatelessSink(Forget()))

    took = []
    for _ in range(times):
        began = time.perf_counter()
        _runtime(build_dataflow, processes, method=method).execute()
        took.append(time.perf_counter() - began)
    return took


class Ticks(StatelessSourceImpl[str, int, int]):
    """16 parts that are polled some times, and have nothing, or a record each time."""

    keyed = False

    def __init__(self, ticks: int, records: int) -> None:
        self._how = (ticks, records)

    def list_parts(self) -> Iterable[str]:
        """List 16 names."""
        return [f"part-{number}" for number in range(PARTS)]

    def build_part(self, part: str) -> TicksPart:
        """Return a reader."""
        del part
        return TicksPart(*self._how)


class TicksPart(StatelessSourcePartition[int, int]):
    """A reader that ends after some polls."""

    def __init__(self, ticks: int, records: int) -> None:
        self._left = ticks
        self._records = records

    def poll_batch(self, limit: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return nothing, or a record."""
        del limit
        self._left -= 1
        found = range(self._left, self._left + self._records)
        return found, found

    def poll(self) -> tuple[int, int] | None:
        """Return nothing, or a record."""
        values, timestamps = self.poll_batch(1)
        return (values[0], timestamps[0]) if values else None

    def is_finished(self) -> bool:
        """Whether it was polled often enough."""
        return self._left == 0


def measure_ticks(processes: int, ticks: int, records: int) -> list[float]:
    """Run a dataflow with an exchange for some ticks; return how many seconds each took."""

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatelessSource(Ticks(ticks, records)))
        sums = numbers.key_distribute("name", _name_of).stateful_map("sum", _add, default=int)
        sums.sink("forget", StatelessSink(Forget()))

    listener = _TickListener()
    _runtime(build_dataflow, processes, listener).execute()
    return listener.seconds[1:]  # the first one imports and allocates
