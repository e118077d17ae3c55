"""``python -m tests.multiprocess.programs.starts FOLDER METHOD RUNS``: many runs, and what they leave, as JSON.

Of four runs, the last one fails in user code and the one before it is stopped. The first runs are not counted: they
import modules, and start the process that forks the others.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from malflow import MultiProcessRuntime, OperatorError, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource

SHARED = ("psm_", "sem.", "pym-", "malflow")
"""How the names of shared memory begin that Python or malflow makes."""


def children() -> Iterable[str]:
    """Yield the commands of the processes that this one has started."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_text(encoding="utf-8")
            except OSError:
                continue
            if parent == os.getpid():
                yield "fork server" if "fork_server" in command else f"{folder.name} {command}"


def left() -> dict[str, Any]:
    """Return what there is in this process and on the machine."""
    shared = Path("/dev/shm")  # noqa: S108 - where shared memory is
    return {
        "processes": sorted(children()),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "files": sorted(str(path) for path in Path(tempfile.gettempdir()).rglob("*")),
        "shared memory": sorted(it.name for it in shared.iterdir() if it.name.startswith(SHARED)),
    }


def run(folder: Path, method: Any, nth: int) -> None:
    """Run once."""
    collected: VecSink[Any, Any, Any] = VecSink()

    def check(value: int) -> int:
        return 1 // (value - 3 if nth % 4 == 3 else 1)

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(10))).map("check", check)
        keyed = numbers.key_distribute("key", lambda msg: msg.value % 2)
        keyed.stateful_map("count", lambda _, value, count: (value, count + 1), int).sink("out", collected)

    backend = FsspecBackend(str(folder / "state"), job=f"job-{nth}")
    runtime = MultiProcessRuntime(build, backend, processes=2, start_method=method)
    if nth % 4 == 2:
        handle = runtime.start()
        handle.stop()
        handle.await_termination()
        return
    try:
        runtime.execute()
    except OperatorError:
        assert nth % 4 == 3


def main(folder: Path, method: str, runs: int) -> None:
    """Print what is there before and after some runs."""
    for nth in range(4):
        run(folder, method, nth)
    before = left()
    for nth in range(4, 4 + runs):
        run(folder, method, nth)
    print(json.dumps([before, left()]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
