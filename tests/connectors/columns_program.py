"""``python -m tests.connectors.columns_program FOLDER parquet|delta [spark] [park]``: numbers into files, a few a tick.

The process dies where ``MALFLOW_FAILPOINT`` says, also at points within commits. With ``park`` it stops there instead,
as a process that was suspended.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.connectors.delta import DeltaSink
from malflow.connectors.delta.table import Table
from malflow.connectors.parquet import ParquetSink
from malflow.connectors.parquet.ledger import Ledger
from malflow.connectors.parquet.places import _LocalPlace
from malflow.engine import transactions
from malflow.store.failpoint import failpoint
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import at_once

SIZE = 12
SIZE_ON_SPARK = 4
OUTPUT = "out"


def add_failpoints(pass_point: Callable[[str], None] = failpoint) -> None:
    """Add a point before and after each step of a commit."""
    for kind, method, name in (
        (_LocalPlace, "publish", "publish"),
        (Ledger, "begin", "begin"),
        (Ledger, "finish", "finish"),
        (Table, "append", "append"),
    ):
        step = getattr(kind, method)

        def between(self: Any, *arguments: Any, step: Any = step, name: str = name) -> Any:
            pass_point(f"before-{name}")
            result = step(self, *arguments)
            pass_point(f"after-{name}")
            return result

        setattr(kind, method, between)


def park(wanted: str) -> Callable[[str], None]:
    """Return what stops this process where it would be killed, until it is continued."""
    parked: list[str] = []

    def pass_point(name: str) -> None:
        if name == wanted and not parked:
            parked.append(name)
            os.write(1, b"parked\n")
            os.kill(os.getpid(), signal.SIGSTOP)

    return pass_point


def run(folder: Path, kind: str, *, on_spark: bool = False) -> None:
    """Run the job to its end."""
    make: Any = {"parquet": ParquetSink, "delta": DeltaSink}[kind]
    sink = make(folder / OUTPUT, formatter=lambda msg: {"n": msg.value})
    size = SIZE_ON_SPARK if on_spark else SIZE

    def build(provider: StreamProvider) -> None:
        script = [item for number in range(size) for item in (number, PAUSE)]
        numbers = provider.new_stream().source("numbers", ScriptedSource({"part": script}))
        keyed = numbers.key_distribute("parity", lambda msg: msg.value % 2)
        keyed.stateful_map("count", lambda _, value, n: (value, n + 1), int).sink("out", sink)

    backend, every = at_once(folder / "state", job="numbers"), timedelta(microseconds=1)
    if on_spark:
        from malflow.runtime.spark.runtime import SparkRuntime  # noqa: PLC0415 - needs Java

        SparkRuntime(build, backend, every, 2, max_records_per_tick=2).execute()
    else:
        SingleThreadRuntime(build, backend, every).execute()


def main(folder: Path, kind: str, *options: str) -> None:
    """Run the job with failpoints."""
    pass_point: Callable[[str], None] = failpoint
    if "park" in options:
        pass_point = park(os.environ["MALFLOW_FAILPOINT"])
        engine: Any = transactions
        engine.failpoint = pass_point
    add_failpoints(pass_point)
    run(folder, kind, on_spark="spark" in options)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
