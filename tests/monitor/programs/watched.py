"""A monitored run without end: ``python -m tests.monitor.programs.watched MODE [FOLDER]``.

Modes: ``monitor``; ``forks``, whose first record forks a child that leaves by `sys.exit` through the run;
``left``, a run in a thread whose process ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

from malflow import SingleThreadRuntime, StreamProvider
from malflow.monitor import Monitor
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource


def _numbers(mode: str) -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number
        time.sleep(0.001)
        if mode == "forks" and number == 1 and os.fork() == 0:
            sys.exit(0)
        if number == 3:
            print("runs", flush=True)


def main() -> None:
    mode = sys.argv[1]

    def build_dataflow(provider: StreamProvider) -> None:
        counting = provider.new_stream().source("numbers", SingleIteratorSource(_numbers(mode)))
        digits = counting.key_distribute("digit", lambda msg: msg.value % 10)
        digits.stateful_map("count", lambda _key, _value, state: (state + 1, state + 1), default=int).sink(
            "out", VecSink()
        )

    persistence = {"persistence": FsspecBackend(sys.argv[2], job="digits")} if len(sys.argv) > 2 else {}
    runtime = SingleThreadRuntime(build_dataflow, listeners=[Monitor()], **persistence)  # type: ignore[arg-type] # a backend
    if mode == "left":
        handle = runtime.start()
        while handle.progress.records.get("numbers", 0) < 10:
            time.sleep(0.01)
        return
    runtime.execute()


if __name__ == "__main__":
    main()
