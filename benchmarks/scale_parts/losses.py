"""An executor of a cluster is killed: the bytes of state that others read, beside its share."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from malflow import SparkRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from scale_parts.ticks import small_cluster

__all__ = ["measure_loss"]

_POLL = 1_000
_STAGES = 2


def measure_loss(executors: int, workers: int, keys: int) -> dict[str, float]:
    """Fill a state, kill an executor, and run until its workers run elsewhere.

    Returns:
        The bytes that were read, those of the whole state in the scratch folder, their ratio to the share of the
        executor, and how many stages of workers moved, beside those that it had.
    """
    session = small_cluster(executors)
    with tempfile.TemporaryDirectory() as scratch:
        handle = SparkRuntime(
            lambda provider: _flow(provider, workers, keys // workers),
            parallelism=workers,
            spark=session,
            scratch=scratch,
        ).start()
        _wait(handle, lambda: handle.progress.records.get("numbers", 0) >= keys)
        tick = handle.progress.tick
        _wait(handle, lambda: handle.progress.tick >= tick + 5)
        before, moved = handle.read_bytes, handle.moves
        held = sum(path.stat().st_size for path in Path(scratch).rglob("*") if path.is_file())
        os.kill(_executors()[0], signal.SIGKILL)
        _wait(handle, lambda: handle.moves > moved)
        tick = handle.progress.tick
        _wait(handle, lambda: handle.progress.tick >= tick + 10)
        read, moves = handle.read_bytes - before, handle.moves - moved
        handle.stop()
        handle.await_termination()
    session.stop()
    return {
        "read": read,
        "held": held,
        "ratio": read / (held / executors),
        "moves": moves / (_STAGES * workers / executors),
    }


def _wait(handle: Any, until: Callable[[], bool]) -> None:
    while not until():
        if handle.await_termination(0.1):
            raise RuntimeError("the run has ended")


def _executors() -> list[int]:
    """Find the executors that this process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                ours = os.getsid(int(entry.name)) == os.getsid(0)
                if ours and b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return sorted(found)


def _flow(provider: StreamProvider, workers: int, keys: int) -> None:
    numbers = provider.new_stream().source("numbers", StatefulSource(_Keys(workers, keys)))
    keyed = numbers.key_distribute("key", lambda message: message.value)
    keyed.stateful_map("count", lambda key, _, total: (key, total + 1), default=int).sink("out", VecSink())


class _Keys(StatefulSourceImpl[int, int, int, int]):
    """Each part emits its keys once, and then one of them at each poll."""

    def __init__(self, parts: int, keys: int) -> None:
        self._parts = parts
        self._keys = keys

    def list_parts(self) -> list[int]:
        """Return the parts."""
        return list(range(self._parts))

    def build_part(self, part: int, state: int | None) -> StatefulSourcePartition[int, int, int]:
        """Return a reader."""
        return _Reader(part, self._parts, self._keys, state or 0)


class _Reader(StatefulSourcePartition[int, int, int]):
    def __init__(self, part: int, parts: int, keys: int, position: int) -> None:
        self._part, self._parts, self._keys, self._at = part, parts, keys, position

    def poll(self) -> tuple[int, int]:
        """Return a key."""
        (key,), (at,) = self.poll_batch(1)
        return key, at

    def poll_batch(self, limit: int) -> tuple[list[int], list[int]]:
        """Return some keys."""
        most = min(limit, _POLL) if self._at < self._keys else 1
        numbers = [*range(self._at, self._at + most)]
        self._at += most
        return [self._part + self._parts * (at % self._keys) for at in numbers], numbers

    def is_finished(self) -> bool:
        """Return False: it never ends."""
        return False

    def snapshot(self) -> int:
        """Return the position."""
        return self._at
