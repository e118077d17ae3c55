"""The processor time of a process and of all that it started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["cpu_seconds"]

_PARENT, _USER, _SYSTEM = 1, 11, 12
"""The places in a line of /proc/<process>/stat, counted from behind the name of the program."""


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
