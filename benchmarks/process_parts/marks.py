"""When each process of a run is ready to read, and when it has its last result, noted in files of one folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Marked", "Memory", "Tally", "memory_of", "note_ready", "read_marks"]


class Memory(NamedTuple):
    """The memory of a process, in megabytes.

    Attributes:
        rss: its resident memory (RSS).
        pss: the same, with each shared page divided by the number of processes that share it (PSS).
    """

    rss: float
    pss: float


@dataclass(frozen=True, slots=True)
class Marked:
    """What the processes of a run have noted.

    Attributes:
        seconds: from the moment when the last of them is ready to build its readers to the last result in any.
        cpu: their processor time, each from the moment when it is ready to its last result.
        records: the records that the results stand for.
        total: the sum of the results.
        before: the memory of each before its first record.
        after: the memory of each at its end.
    """

    seconds: float
    cpu: float
    records: int
    total: float
    before: list[Memory]
    after: list[Memory]


def note_ready(folder: str) -> None:
    """Note the moment at which this process is about to build its first reader; called before each one.

    The clock is the same in all processes of the machine.
    """
    path = Path(folder, f"{os.getpid()}.ready")
    if not path.exists():
        memory = memory_of()
        path.write_text(json.dumps({"at": time.monotonic(), "cpu": time.process_time(), "memory": memory}))


class Tally:
    """The results that one process has received, and the moment of the last."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._records = 0
        self._total = 0.0
        self.touch()

    def note(self, records: int, total: float) -> None:
        """Add results.

        Args:
            records: the number of records that they stand for.
            total: their sum.
        """
        self._records += records
        self._total += total
        self.touch()

    def touch(self) -> None:
        """Note the present moment as that of the last result."""
        self._at, self._cpu = time.monotonic(), time.process_time()

    def write(self) -> None:
        """Write what was noted to a file of this process."""
        noted = {"records": self._records, "total": self._total, "at": self._at, "cpu": self._cpu}
        path = Path(self._folder, f"{os.getpid()}.last")
        path.write_text(json.dumps({**noted, "memory": memory_of()}))


def read_marks(folder: str) -> Marked:
    """Return what all processes of a run have noted."""
    ready, lasts = _noted(folder, "ready"), _noted(folder, "last")
    return Marked(
        seconds=max(it["at"] for it in lasts.values()) - max(it["at"] for it in ready.values()),
        cpu=sum(it["cpu"] - ready[name]["cpu"] for name, it in lasts.items() if name in ready),
        records=sum(it["records"] for it in lasts.values()),
        total=sum(it["total"] for it in lasts.values()),
        before=[Memory(*it["memory"]) for it in ready.values()],
        after=[Memory(*it["memory"]) for it in lasts.values()],
    )


def memory_of(pid: int | str = "self") -> Memory:
    """Return the memory of a process; zeros where the system does not tell."""
    found = {"VmRSS": 0.0, "Pss": 0.0}
    for name in ("status", "smaps_rollup"):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/{name}").read_text().splitlines():
                field, _, value = line.partition(":")
                if field in found:
                    found[field] = int(value.split()[0]) / 1024
    return Memory(found["VmRSS"], found["Pss"])


def _noted(folder: str, kind: str) -> Mapping[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in Path(folder).glob(f"*.{kind}")}
