"""``python -m tests.transactions.program FOLDER [staged] [spark]``: numbers into a ledger, a few a tick.

It has points of its own: ``sink-NAME`` before each of the sink's calls.
"""

from __future__ import annotations

import sys
from pathlib import Path

from malflow import StreamProvider
from malflow.store.failpoint import failpoint
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import at_once
from tests.kit.ledger import LedgerSink
from tests.kit.running import run_job

SIZE = 12
SIZE_ON_SPARK = 4
OUTSIDE = "outside.db"


def main(folder: Path, *options: str) -> None:
    """Run the job to its end."""
    sink = LedgerSink(
        folder / OUTSIDE, staged="staged" in options, before=lambda call: failpoint(f"sink-{call.replace(' ', '-')}")
    )
    size = SIZE_ON_SPARK if "spark" in options else SIZE

    def build(provider: StreamProvider) -> None:
        script = [item for number in range(size) for item in (number, PAUSE)]
        numbers = provider.new_stream().source("numbers", ScriptedSource({"part": script}))
        keyed = numbers.key_distribute("parity", lambda msg: msg.value % 2)
        keyed.stateful_map("count", lambda _, value, n: (value, n + 1), int).sink("ledger", sink)

    run_job(build, at_once(folder / "state", job="numbers"), spark_ticks=2 if "spark" in options else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
