"""The measurements of a peer of the running sum on several processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Measured", "cpu_seconds", "scattered"]

_STEP = 7_919
_SHORTEST = 100_000
_PARENT, _USER, _SYSTEM = 1, 11, 12
"""The places in a line of /proc/<process>/stat, counted from behind the name of the program."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a window of time.

    Attributes:
        rate: records a second.
        cpu: seconds of processor time, of all processes, in the window.
        records: the records of the window.
        ticks: how many ticks or batches it had; 0 where there are none.
        tick: how many seconds each took, by the median.
        snapshots: how many snapshots were committed in it.
    """

    rate: float
    cpu: float
    records: int
    ticks: int = 0
    tick: float = 0.0
    snapshots: int = 0


@cache
def scattered(keys: int) -> list[int]:
    """List the numbers below `keys` in an order that jumps about, often enough to cut it in slices of some thousands.

    There is one list a process.
    """
    return [number * _STEP % keys for number in range(keys)] * -(-_SHORTEST // keys)


def cpu_seconds() -> float:
    """Return how much processor time this process has taken, with all that it started and that still runs."""
    processes = dict(_processes())
    family, more = {os.getpid()}, True
    while more:
        children = {process for process, (parent, _) in processes.items() if parent in family} - family
        family |= children
        more = bool(children)
    return sum(processes[process][1] for process in family if process in processes)


def _processes() -> Iterator[tuple[int, tuple[int, float]]]:
    tick = os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        yield int(folder.name), (int(fields[_PARENT]), (int(fields[_USER]) + int(fields[_SYSTEM])) / tick)
