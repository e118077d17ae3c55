"""The measurements that a monitor takes of a run, and whether the run is alive and ready."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from malflow.errors import MalflowError
from malflow.events import Event, PartsMoved, Rescaled, SnapshotCommitted, SnapshotFailed, TickFinished
from malflow.runtime.progress.progress import Progress
from malflow.runtime.progress.time_table import TimeTable

__all__ = [
    "SECONDS",
    "Buckets",
    "Distribution",
    "Meters",
    "Times",
    "is_alive",
    "is_ready",
]

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0)
"""The upper bounds of buckets of durations, in seconds; one more bucket holds longer durations."""


class Buckets(NamedTuple):
    """A distribution at one moment.

    Attributes:
        counts: the number of values in each bucket; the last bucket is for those above all bounds.
        sum: the sum of the values.
        least: the least of them; 0 if there are none.
        most: the greatest of them; 0 if there are none.
    """

    counts: tuple[int, ...]
    sum: float
    least: float
    most: float


class Distribution:
    """The distribution of durations."""

    def __init__(self) -> None:
        self._counts = [0] * (len(SECONDS) + 1)
        self._sum = self._most = 0.0
        self._least = float("inf")

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(SECONDS, seconds)] += 1
        self._sum += seconds
        self._least, self._most = min(self._least, seconds), max(self._most, seconds)

    @property
    def buckets(self) -> Buckets:
        """The distribution so far."""
        return Buckets(tuple(self._counts), self._sum, min(self._least, self._most), self._most)


class Meters:
    """The measurements of one run: events are noted on its own thread, progress on the monitor's thread.

    Attributes:
        ticks: the durations of its ticks.
        captures: how long ticks waited for snapshots.
        writes: how long it then took to write snapshots.
        snapshots: the number of snapshots.
        failures: the number of snapshots that failed.
        rescales: how often the number of workers changed.
        moves: how many parts moved to another worker.
        silence: when each source was last seen to give a record, by a monotonic clock.
        tick_at: when the last tick ended, by that clock; before the first, when the run started.
        unsaved_since: when the first record that is in no snapshot was seen; None if every record is in one.
    """

    def __init__(self) -> None:
        self.ticks, self.captures, self.writes = Distribution(), Distribution(), Distribution()
        self.snapshots = self.failures = self.rescales = self.moves = 0
        self.silence: dict[str, float] = {}
        self.tick_at = time.monotonic()
        self.unsaved_since: float | None = None
        self._saved: int | None = None
        self._records = 0
        self._given: dict[str, int] = {}

    def note_tick(self, event: TickFinished) -> None:
        """Note a tick."""
        self.ticks.add(event.seconds)
        self.tick_at = time.monotonic()

    def note(self, event: Event, progress: Callable[[], Progress]) -> None:
        """Note another event.

        Args:
            event: the event.
            progress: returns the progress of the run.
        """
        match event:
            case SnapshotCommitted():
                self.snapshots += 1
                info = progress().last_snapshot
                if info is not None and info.capture_seconds is not None and info.write_seconds is not None:
                    self.captures.add(info.capture_seconds)
                    self.writes.add(info.write_seconds)
            case SnapshotFailed():
                self.failures += 1
            case Rescaled():
                self.rescales += 1
            case PartsMoved(parts=parts):
                self.moves += len(parts)
            case _:
                pass

    def sample(self, progress: Progress, now: float) -> None:
        """Note which sources have given records since the last sample, and whether a snapshot contains them.

        Args:
            progress: the progress of the run.
            now: the time, by a monotonic clock.
        """
        for name, it in progress.operators.items():
            if it.kind == "source" and self._given.get(name) != it.taken:
                self._given[name], self.silence[name] = it.taken, now
        records = sum(self._given.values())
        if progress.snapshot != self._saved:
            self._saved, self.unsaved_since = progress.snapshot, None
        elif records != self._records and self.unsaved_since is None:
            self.unsaved_since = now
        self._records = records


class Times:
    """The event time of a run. It is asked for only while somebody reads it, and at most every few seconds.

    Readers get the answer to an earlier request. None of them thus waits for a tick.

    Args:
        explain: asks the run, and waits for the end of its tick.
    """

    _EVERY: Final = 5.0
    _PATIENCE: Final = 60.0

    def __init__(self, explain: Callable[[float], TimeTable]) -> None:
        self._explain = explain
        self._lock = threading.Lock()
        self._asked_at = float("-inf")
        self._last: TimeTable | None = None
        self._grew: dict[str, tuple[Any, float]] = {}

    def latest(self) -> tuple[TimeTable | None, dict[str, float]]:
        """Return the last answer, and when each epoch was last seen to grow. Ask again if it is old."""
        with self._lock:
            is_due = time.monotonic() - self._asked_at >= self._EVERY
            if is_due:
                self._asked_at = float("inf")  # until it is answered
        if is_due:
            with suppress(RuntimeError):  # no thread can be started
                threading.Thread(target=self._ask, name="malflow-times", daemon=True).start()
        return self._last, {name: at for name, (_, at) in [*self._grew.items()]}

    def _ask(self) -> None:
        with suppress(MalflowError, TimeoutError):
            found = self._explain(self._PATIENCE)
            now = time.monotonic()
            grew = {name: (epoch, now) for name, epoch in found.epochs.items()}
            kept = {name: old for name, old in self._grew.items() if name in grew and old[0] == grew[name][0]}
            self._last, self._grew = found, grew | kept
        self._asked_at = time.monotonic()


_LONGEST_TICK: Final = 60.0
"""The most seconds since the last tick of a live run. Half of it lets a probe restart runs with slow external calls,
double leaves a hung one for another minute."""

_INTERVALS: Final = 3
"""The number of snapshot intervals for which a record may be in no snapshot."""


def is_alive(progress: Progress, meters: Meters) -> bool:
    """Whether a run does not hang: its last tick ended less than a minute ago, or it has a reason to wait.

    Args:
        progress: its progress.
        meters: the measurements of its monitor.
    """
    match progress.status:
        case "running" | "stopping":
            return time.monotonic() - meters.tick_at < _LONGEST_TICK
        case "starting" | "resting" | "blocked" | "restarting" | "ended":
            return True
        case _:
            return False


def is_ready(progress: Progress, meters: Meters) -> bool:
    """Whether a run has its state, is alive, and has no record that has waited too long for a snapshot.

    Args:
        progress: its progress.
        meters: the measurements of its monitor.
    """
    if progress.status not in ("running", "resting") or not is_alive(progress, meters):
        return False
    unsaved, interval = meters.unsaved_since, progress.snapshot_interval
    return unsaved is None or interval is None or time.monotonic() - unsaved < _INTERVALS * interval
