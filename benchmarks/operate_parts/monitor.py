"""The price of a monitor: without anybody who asks, with one client twice a second, and with a hundred silent ones.

The runs alternate in one process; another version runs in a second process, in turn with them. Times are processor
times, so they include the threads of the monitor.
"""

from __future__ import annotations

import gc
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

from tables import print_table

from malflow import NoKey, SingleThreadRuntime, StreamProvider
from malflow.monitor import Monitor, client
from malflow.sinks import StatelessSink, StatelessSinkImpl
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from operate_parts.versions import ROOT, Measure, other_version, serve

__all__ = ["print_monitor", "summing"]

_PER_TICK = (8192, 64)
_CLIENTS = 100
BEFORE, PLAIN = "before", "plain"
_NAMES = [f"key-{number}" for number in range(1_000)]


class _Numbers(StatefulSourcePartition[int, int, int]):
    """Reads so many numbers a tick."""

    def __init__(self, position: int | None, records: int, per_tick: int) -> None:
        self._at = position or 0
        self._end = records
        self._per_tick = per_tick

    def poll(self) -> tuple[int, int] | None:
        values, timestamps = self.poll_batch(1)
        return (values[0], timestamps[0]) if values else None

    def poll_batch(self, limit: int) -> tuple[Sequence[int], Sequence[int]]:
        first, self._at = self._at, min(self._at + min(limit, self._per_tick), self._end)
        column = range(first, self._at)
        return list(column), list(column)

    def is_finished(self) -> bool:
        return self._at >= self._end

    def snapshot(self) -> int:
        return self._at


class _Source(StatefulSourceImpl[Any, int, int, int]):
    """Numbers, so many a tick."""

    def __init__(self, records: int, per_tick: int) -> None:
        self._records, self._per_tick = records, per_tick

    def list_parts(self) -> list[Any]:
        return [NoKey]

    def build_part(self, _part: Any, position: int | None) -> _Numbers:
        return _Numbers(position, self._records, self._per_tick)


class _Nothing(StatelessSinkImpl[Any, Any, Any]):
    """Drops all records."""

    def sink(self, message: Any) -> None:
        pass


def print_monitor(rounds: int, records: int, before: Path | None = None) -> None:
    """Print the table.

    Args:
        rounds: how often each job runs in each mode.
        records: how many records each job gets.
        before: a checkout of another version, whose runs without a monitor are measured too.
    """
    modes = [*([BEFORE] if before else []), *LOOKS]
    folder = tempfile.mkdtemp(prefix="mf")
    os.environ["XDG_RUNTIME_DIR"] = folder
    try:
        with ExitStack() as stack:
            here = stack.enter_context(other_version(__file__, ROOT))
            measures = dict.fromkeys(LOOKS, here)
            if before:
                measures[BEFORE] = stack.enter_context(other_version(__file__, before))
            rows = [_row(per_tick, modes, measures, rounds, records) for per_tick in _PER_TICK]
    finally:
        shutil.rmtree(folder)
    print(f"\nCPU ns a record by those who look, medians; '/': the speed, medians of the rounds, '{modes[0]}' is 1\n")
    print_table(("records a tick", *modes, *(f"{mode} / {modes[0]}" for mode in modes[1:])), rows)


def _row(
    per_tick: int, modes: Sequence[str], measures: Mapping[str, Measure], rounds: int, records: int
) -> Sequence[str]:
    """Run the job once a round in each mode, each round beginning with another one, and make the row of the table."""
    times: dict[str, list[float]] = {mode: [] for mode in modes}
    for turn in range(rounds):
        for mode in [*modes[turn % len(modes) :], *modes[: turn % len(modes)]]:
            times[mode].append(measures[mode](per_tick, records, mode))
    ratios = [median(map(truediv, times[modes[0]], times[mode])) for mode in modes[1:]]
    print(per_tick, {mode: round(median(found), 1) for mode, found in times.items()}, flush=True)
    return (f"{per_tick:,}", *(f"{median(times[it]):,.0f}" for it in modes), *(f"{it:.3f}" for it in ratios))


def summing(per_tick: int, records: int) -> Callable[[StreamProvider], None]:
    """Return a dataflow that sums numbers by one of a thousand names."""

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(_Source(records, per_tick)))
        named = numbers.map("double", lambda number: 2 * number).key_distribute("name", _name)
        named.stateful_map("sum", lambda _key, value, state: (state + value, state + value), default=int).sink(
            "out", StatelessSink(_Nothing())
        )

    return build_dataflow


def _measured(per_tick: int, records: int, mode: str) -> float:
    """Return the processor time of a run, in ns a record."""
    gc.collect()
    runtime = SingleThreadRuntime(summing(per_tick, records), listeners=[] if mode in (BEFORE, PLAIN) else [Monitor()])
    with LOOKS.get(mode, nullcontext)():
        start = time.process_time()
        runtime.execute()
        return (time.process_time() - start) / records * 1e9


def _name(msg: Any) -> str:
    return _NAMES[msg.value % 1_000]


@contextmanager
def _asked() -> Iterator[None]:
    """Within the context, ask the run for its progress twice a second."""
    is_done = threading.Event()

    def ask() -> None:
        while not is_done.wait(0.5):
            for run in client.live_runs():
                with suppress(client.NoAnswer):  # it has just ended
                    client.ask(run, "progress")

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


@contextmanager
def _besieged() -> Iterator[None]:
    """Within the context, a hundred clients send half a request, and another one when they are closed."""
    is_done = threading.Event()

    def besiege() -> None:
        while not is_done.wait(0.2):
            with ExitStack() as stack:
                for run in client.live_runs():
                    for _ in range(_CLIENTS):
                        _send_half(stack, run.socket)
                is_done.wait(1)

    thread = threading.Thread(target=besiege)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


def _send_half(stack: ExitStack, path: Path) -> None:
    end = stack.enter_context(socket.socket(socket.AF_UNIX))
    end.settimeout(1)
    try:
        end.connect(str(path))
        end.sendall(b'{"malflow": 1')
    except OSError:  # the run has ended, or has closed it
        pass


LOOKS: dict[str, Callable[[], Any]] = {
    PLAIN: nullcontext,
    "monitor": nullcontext,
    "asked": _asked,
    "100 clients": _besieged,
}

if __name__ == "__main__":  # a process that measures
    serve(_measured)
