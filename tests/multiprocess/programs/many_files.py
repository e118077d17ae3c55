"""A program that counts the lines of many files in two worker processes: ``python -m ... FOLDER [FATAL ...]``.

A worker process is killed where it reads the first line of each file that is named as fatal, once for each folder.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from malflow import MultiProcessRuntime, RestartPolicy, StreamProvider
from malflow.sinks import JsonLinesSink
from malflow.sources import TextFileSource
from tests.kit.backends import at_once
from tests.multiprocess.programs.totals import FAILPOINT, is_first

__all__ = ["runtime_of"]


def read(folder: Path, fatal: frozenset[str], line: str) -> tuple[str, int]:
    """Return the file and the number of a line; kill this process at the first line of a fatal file."""
    name, _, row = line.partition(" ")
    if name in fatal and row == "0" and is_first(folder / f"killed-{name}"):
        os.kill(os.getpid(), signal.SIGKILL)
    return name, int(row)


def build(folder: Path, fatal: frozenset[str], provider: StreamProvider) -> None:
    """Count the lines of each file, right after the source."""
    lines = provider.new_stream().source("files", TextFileSource(f"{folder}/in/*.txt"))
    rows = lines.map("read", partial(read, folder, fatal))
    rows.stateful_map("count", count, int).sink("out", JsonLinesSink(str(folder / "out.jsonl")))


def count(_part: str, row: tuple[str, int], n: int) -> tuple[Any, int]:
    """Return the file, the number of the line, and the count so far."""
    return (*row, n + 1), n + 1


def runtime_of(folder: Path, fatal: frozenset[str] = frozenset()) -> MultiProcessRuntime:
    """Return the runtime of the job; it takes a snapshot after each tick."""
    backend = at_once(folder / "kept")
    restart = RestartPolicy(9, timedelta(milliseconds=10))
    options: dict[str, Any] = {"processes": 2, "parallelism": 3, "start_method": "forkserver"}
    return MultiProcessRuntime(partial(build, folder, fatal), backend, "1us", restart=restart, **options)


if __name__ == "__main__":
    os.environ.setdefault(FAILPOINT, "")
    runtime_of(Path(sys.argv[1]), frozenset(sys.argv[2:])).execute()
