"""A program that sums what calls return, with a snapshot after each tick, and is killed in a call.

``python -m tests.calling_out.programs.summing FOLDER NUMBER`` kills itself when it is called with the number, while
other calls are under way. At the end it prints the sum.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from malflow import StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import ScriptedSource
from tests.kit.running import run_job


def main(folder: Path, number: int) -> None:
    """Run the job to its end, or until it is called with a number."""
    totals: VecSink[int, int, int] = VecSink()

    async def called(value: int) -> int:
        with (folder / "calls").open("a") as calls:
            calls.write(f"{value}\n")
        await asyncio.sleep(0.001)
        if value == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource(range(1000)))
        keyed = numbers.key_distribute("all", lambda _: 0).map_async("call", called, capacity=8)
        sums = keyed.stateful_map("sum", lambda _, value, total: (total + value, total + value), default=int)
        sums.sink("out", totals)

    run_job(build, FsspecBackend(folder / "snapshots"))
    print(totals.values[-1])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
