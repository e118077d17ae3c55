"""``python -m tests.transactions.program FOLDER [staged] [spark] [park]``: numbers into a ledger, a few a tick.

The sink dies where ``MALFLOW_FAILPOINT`` says, also at points of its own: ``sink-NAME`` before each of its calls. With
``park`` it stops there until its input has a line, as a process that was suspended.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from malflow import SingleThreadRuntime, StreamProvider
from malflow.engine import transactions
from malflow.store.failpoint import failpoint
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import at_once
from tests.kit.ledger import LedgerSink

SIZE = 12
SIZE_ON_SPARK = 4
OUTSIDE = "outside.db"


def park_instead() -> None:
    """Stop this process where it would be killed, until it is continued."""
    wanted = os.environ["MALFLOW_FAILPOINT"]
    parked: list[str] = []

    def park(name: str) -> None:
        if name == wanted and not parked:
            parked.append(name)
            os.write(1, b"parked\n")
            os.kill(os.getpid(), signal.SIGSTOP)

    transactions.failpoint = park  # type: ignore[attr-defined]


def main(folder: Path, *options: str) -> None:
    """Run the job to its end."""
    sink = LedgerSink(
        folder / OUTSIDE, staged="staged" in options, before=lambda call: failpoint(f"sink-{call.replace(' ', '-')}")
    )
    size = SIZE_ON_SPARK if "spark" in options else SIZE
    if "park" in options:
        park_instead()

    def build(provider: StreamProvider) -> None:
        script = [item for number in range(size) for item in (number, PAUSE)]
        numbers = provider.new_stream().source("numbers", ScriptedSource({"part": script}))
        keyed = numbers.key_distribute("parity", lambda msg: msg.value % 2)
        keyed.stateful_map("count", lambda _, value, n: (value, n + 1), int).sink("ledger", sink)

    backend, every = at_once(folder / "state", job="numbers"), timedelta(microseconds=1)
    if "spark" in options:
        from malflow.runtime.spark.runtime import SparkRuntime  # noqa: PLC0415 - needs Java

        SparkRuntime(build, backend, every, 2, max_records_per_tick=2).execute()
    else:
        SingleThreadRuntime(build, backend, every).execute()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
