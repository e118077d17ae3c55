"""``python -m tests.connectors.sql.program FOLDER URL``: numbers into table t, each as two rows, a few a tick.

A reader who sees one row of a number without the other has seen a part of a transaction.
"""

from __future__ import annotations

import sys
from pathlib import Path

from malflow import StreamProvider
from malflow.connectors.sql import SqlSink
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import at_once
from tests.kit.running import run_job

SIZE = 12


def main(folder: Path, url: str) -> None:
    """Run the job to its end."""

    def build(provider: StreamProvider) -> None:
        script = [item for number in range(SIZE) for item in (number, PAUSE)]
        numbers = provider.new_stream().source("numbers", ScriptedSource({"part": script}))
        rows = numbers.flat_map("rows", lambda number: [(number, "left"), (number, "right")])
        rows.sink("table", SqlSink(url, "t", key=()))

    run_job(build, at_once(folder, job="numbers", codec="msgpack"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
