"""The same jobs as dataflows of bytewax, in processes of one worker each."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.files import DirSource
from bytewax.dataflow import Dataflow, Stream
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from process_parts.inputs import KEYS, MINUTE, PARTS
from process_parts.marks import Tally, note_ready, read_marks

__all__ = ["job_flow", "measure_job"]

_BATCH = 1_000
"""The default of its file and Kafka connectors."""

_REST = 2.0
"""Seconds that a process gets to end after another one has failed."""

_NAMES = [f"key-{number}" for number in range(KEYS)]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WAIT = timedelta(days=1)
"""How long a window waits for late records: its workers read on without waiting for each other, as malflow's do not."""

_Measure = Callable[[Sequence[Any]], tuple[int, float]]


def measure_job(job: str, processes: int, records: int, source: Any, folder: str) -> dict[str, Any]:
    """Run a job, without recovery; return what its processes have noted.

    Processes that end at about the same time may panic over a lost connection; all results are counted by then.
    """
    errors = _run(processes, f"job_flow({job!r}, {records}, {source!r}, {folder!r})")
    if len(list(Path(folder).glob("*.last"))) < processes:
        raise SystemExit(errors)
    return asdict(read_marks(folder))


def _run(processes: int, flow: str) -> str:
    """Run a dataflow in processes; return their errors, and end the others if one fails."""
    here = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    addresses = ";".join(f"localhost:{port}" for port in _free_ports(processes))
    command = [sys.executable, "-m", "bytewax.run", f"process_parts.bytewax_jobs:{flow}", "-a", addresses, "-i"]
    started = [
        subprocess.Popen(  # noqa: S603 - our own dataflow
            [*command, str(number)],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    errors = ""
    for process in started:
        errors += process.communicate()[1]
        if process.returncode:
            time.sleep(_REST)
            for other in started:
                other.kill()
    return errors


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.socket()) for _ in range(count)]
        for server in servers:
            server.bind(("localhost", 0))
        return [server.getsockname()[1] for server in servers]


def job_flow(job: str, records: int, source: Any, folder: str) -> Dataflow:
    """Build the dataflow of a job."""
    flow = Dataflow("flow")
    jobs = {"a": _sum, "c": _windows_of_topic, "d": _busy, "g": _counts_of_topic}
    jobs.get(job, _windows_of_files)(flow, records, source, folder)
    return flow


class _Numbers(FixedPartitionedSource[int, int]):
    """Numbers from 0 in each of 16 parts, which bytewax deals out to its workers in turn."""

    def __init__(self, records: int, folder: str) -> None:
        self._share = records // PARTS
        self._folder = folder

    def list_parts(self) -> list[str]:
        return [f"part-{number:02}" for number in range(PARTS)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _NumbersPart:
        del step_id, for_part
        note_ready(self._folder)
        return _NumbersPart(self._share, resume_state or 0)


class _NumbersPart(StatefulSourcePartition[int, int]):
    def __init__(self, end: int, position: int) -> None:
        self._end = end
        self._position = position

    def next_batch(self) -> list[int]:
        if self._position >= self._end:
            raise StopIteration
        start = self._position
        self._position = min(start + _BATCH, self._end)
        return list(range(start, self._position))

    def snapshot(self) -> int:
        return self._position


class _MarkedFiles(DirSource):
    """Lines of files, with a note of when the first is opened."""

    def __init__(self, folder: str, notes: str) -> None:
        super().__init__(Path(folder), "*.jsonl", _BATCH, lambda _: "here")
        self._notes = notes

    def build_part(self, *arguments: Any, **options: Any) -> Any:
        note_ready(self._notes)
        return super().build_part(*arguments, **options)


class _Counter(StatelessSinkPartition[Any]):
    """Counts the results of a worker."""

    def __init__(self, tally: Tally, measure: _Measure) -> None:
        self._tally = tally
        self._measure = measure

    def write_batch(self, items: list[Any]) -> None:
        self._tally.note(*self._measure(items))

    def close(self) -> None:
        self._tally.write()


class _Sink(DynamicSink[Any]):
    def __init__(self, folder: str, measure: _Measure) -> None:
        self._folder = folder
        self._measure = measure

    def build(self, *_: Any) -> _Counter:
        return _Counter(Tally(self._folder), self._measure)


# The jobs


def _sum(flow: Dataflow, records: int, _source: Any, folder: str) -> None:
    numbers = op.input("numbers", flow, _Numbers(records, folder))
    sums = op.stateful_map("sum", op.key_on("name", numbers, _name_of), _add)
    op.output("results", sums, _Sink(folder, _number_of))


def _name_of(value: int) -> str:
    return _NAMES[value % KEYS]


def _add(state: int | None, value: int) -> tuple[int, int]:
    if state is None:
        state = 0
    return state + value, state + value


def _number_of(items: Sequence[Any]) -> tuple[int, float]:
    return len(items), 0.0


def _windows_of_files(flow: Dataflow, _records: int, paths: Sequence[str], folder: str) -> None:
    lines = op.input("notes", flow, _MarkedFiles(str(Path(paths[0]).parent), folder))
    op.output("results", _windowed(op.map("json", lines, json.loads)), _Sink(folder, _people_in_windows))


def _windowed(notes: Stream[Any]) -> Stream[Any]:
    """Count records and people of each town in each minute."""
    keyed = op.key_on("town", notes, _town_of)
    found = win.fold_window(
        "people",
        keyed,
        win.EventClock(_time_of, _WAIT),
        win.TumblingWindower(timedelta(milliseconds=MINUTE), _EPOCH),
        _nobody,
        _with_note,
        _both,
        ordered=False,  # which spares it a queue of records, sorted by time
    )
    return found.down


def _town_of(note: dict[str, Any]) -> str:
    town: str = note["town"]
    return town


def _time_of(note: dict[str, Any]) -> datetime:
    return _EPOCH + timedelta(milliseconds=note["at"])


def _nobody() -> tuple[int, int]:
    return 0, 0


def _with_note(so_far: tuple[int, int], note: dict[str, Any]) -> tuple[int, int]:
    return so_far[0] + 1, so_far[1] + note["people"]


def _both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _people_in_windows(items: Sequence[tuple[str, tuple[int, tuple[int, int]]]]) -> tuple[int, float]:
    found = [result for _, (_, result) in items]
    return sum([records for records, _ in found]), sum([people for _, people in found])


def _windows_of_topic(flow: Dataflow, _records: int, source: Any, folder: str) -> None:
    from process_parts.bytewax_kafka import MarkedSink, MarkedSource  # noqa: PLC0415 - an extra

    servers, topic, results = source
    messages = op.input("notes", flow, MarkedSource(topic, servers, folder))
    windows = _windowed(op.map("json", messages, lambda message: json.loads(message.value)))
    op.output("results", windows, MarkedSink(results, servers, Tally(folder), _people_in_windows))


def _counts_of_topic(flow: Dataflow, _records: int, source: Any, folder: str) -> None:
    from process_parts.bytewax_kafka import MarkedSource  # noqa: PLC0415 - an extra

    servers, topic, _ = source
    messages = op.input("notes", flow, MarkedSource(topic, servers, folder))
    windows = _windowed(op.map("json", messages, lambda message: json.loads(message.value)))
    op.output("results", windows, _Sink(folder, _people_in_windows))


def _busy(flow: Dataflow, records: int, loops: int, folder: str) -> None:
    numbers = op.input("numbers", flow, _Numbers(records, folder))
    op.output("results", op.map("busy", numbers, partial(_work, loops)), _Sink(folder, _sum_of))


def _work(loops: int, value: int) -> int:
    for _ in range(loops):
        pass
    return value


def _sum_of(items: Sequence[int]) -> tuple[int, float]:
    return len(items), sum(items)
