"""Runs with the faults that raise alerts, and one run without a fault."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from malflow import OnError, SingleThreadRuntime, StreamProvider, limit_out_of_orderness
from malflow.errors import StoreError
from malflow.monitor import Monitor
from malflow.runtime.handle import RunHandle
from malflow.serve import Page
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSourceImpl, StatefulSourcePartition
from malflow.store.local import LocalStore
from tests.kit.waiting import wait_until

__all__ = ["FAULTS", "FaultyRuns"]

Build = Callable[[StreamProvider], object]


class Numbers(StatefulSourceImpl[str, int, datetime, int]):
    """Emits twenty numbers a second with the current time; each tenth may have a time an hour ago.

    Args:
        lag: returns the lag after a number.
        goes_back: whether each tenth timestamp is an hour ago.
        last: the last number to emit, although there is more input.
    """

    keyed = False

    def __init__(
        self, lag: Callable[[int], int] = lambda _: 0, *, goes_back: bool = False, last: float = math.inf
    ) -> None:
        self.lag, self.goes_back, self.last = lag, goes_back, last

    def list_parts(self) -> list[str]:
        return ["numbers"]

    def build_part(self, part: str, state: int | None) -> _Reader:
        return _Reader(self, state or 0)


class _Reader(StatefulSourcePartition[int, datetime, int]):
    def __init__(self, source: Numbers, number: int) -> None:
        self._source, self._number, self._due = source, number, 0.0

    def poll(self) -> tuple[int, datetime] | None:
        if time.monotonic() < self._due or self._number >= self._source.last:
            return None
        self._due = time.monotonic() + 0.05
        self._number += 1
        is_back = self._source.goes_back and self._number % 10 == 0
        return self._number, datetime.now(UTC) - timedelta(hours=is_back)

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> int:
        return self._number

    def lag(self) -> int:
        return self._source.lag(self._number)


def summed(source: Numbers, work: Callable[[int], int] = int, on_error: Any = "fail") -> Build:
    """Return a function that builds a dataflow that sums numbers by parity."""

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", source)
        timed, late = numbers.generate_epochs("epochs", limit_out_of_orderness(timedelta(seconds=5)))
        late.sink("late", VecSink())
        worked = timed.map("work", work, on_error=on_error).key_distribute("parity", lambda msg: msg.value % 2)
        worked.stateful_map("sum", lambda _, value, total: (total + value, total + value), default=int).sink(
            "out", VecSink()
        )

    return build


class FullStore(LocalStore):
    """A folder on a disk that becomes full once a run has started there."""

    has_space = True

    def put_new(self, key: str, data: bytes) -> None:
        if not self.has_space:
            raise StoreError(f"no space left for {key}")
        super().put_new(key, data)


class FaultyRuns:
    """Runs, each with its own job and page; they are stopped at the end.

    Args:
        folder: the folder of their state.

    Attributes:
        targets: the metrics address of each job, as ``host:port``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._disk = FullStore(folder / "full")
        self._runs: list[RunHandle] = []
        self._pages: list[Page] = []
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.targets: dict[str, str] = {}

    def start_healthy(self) -> None:
        """Start a run without a fault; the lag of its source is large and shrinks."""
        self._start("healthy", summed(Numbers(lambda number: 50_000 - number)))

    def start_faulty(self) -> None:
        """Start a run with each of the faults."""
        run = self._start("full-disk", summed(Numbers()), self._disk)
        wait_until(lambda: run.progress.last_snapshot is not None)
        self._disk.has_space = False
        self._start("hanging", summed(Numbers(), self._hangs))
        self._start("stuck", summed(Numbers(lambda _: 10, last=20)))
        self._start("lagging", summed(Numbers(lambda number: 2000 + number)))
        self._start("late", summed(Numbers(goes_back=True)))
        self._start("failing", summed(Numbers(), _fails, "skip"))
        self._start("letters", summed(Numbers(), _fails, OnError("dead_letter", full="drop_oldest")))
        thread = threading.Thread(target=self._restarts, name="restarts")
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Stop them."""
        self._over.set()
        self._disk.has_space = True  # for the last snapshot
        for thread in self._threads:
            thread.join(60)
        for run in self._runs:
            run.stop()
        for run in self._runs:
            run.await_termination()
        for page in self._pages:
            page.close()

    def _start(self, job: str, build: Build, store: LocalStore | None = None, page: Page | None = None) -> RunHandle:
        page = page or self._page()
        folder = store or LocalStore(self._folder / job)
        kept = FsspecBackend(store=folder, job=job, retry_for=timedelta(milliseconds=1), codec="msgpack")
        runtime = SingleThreadRuntime(build, kept, timedelta(milliseconds=250), listeners=[Monitor(page)])
        handle = runtime.start()
        self._runs.append(handle)
        wait_until(lambda: page.address is not None)
        self.targets[job] = str(page.address).removeprefix("http://").rstrip("/")
        return handle

    def _page(self) -> Page:
        page = Page("127.0.0.1:0", metrics_token=False)
        self._pages.append(page)
        return page

    def _restarts(self) -> None:
        """Run a job again and again, for a second each time."""
        page = self._page()
        while not self._over.is_set():
            handle = self._start("restarting", summed(Numbers()), page=page)
            self._over.wait(1)
            handle.stop()
            handle.await_termination()

    def _hangs(self, number: int) -> int:
        """Return a number, but hang for the tenth."""
        if number > 10:
            self._over.wait()
        return number


def _fails(number: int) -> int:
    if number % 10 == 0:
        raise ValueError(number)
    return number


FAULTS = {
    ("full-disk", "MalflowNoSnapshot"),
    ("hanging", "MalflowNoProgress"),
    ("stuck", "MalflowNoProgress"),
    ("gone", "MalflowNoProgress"),
    ("lagging", "MalflowLagGrows"),
    ("late", "MalflowLateShare"),
    ("failing", "MalflowErrorShare"),
    ("letters", "MalflowErrorShare"),
    ("restarting", "MalflowRestarts"),
}
"""The jobs and the alerts that must fire for them; ``gone`` is a job that was never started."""
