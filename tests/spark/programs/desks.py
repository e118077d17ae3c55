"""The desks of a set are given away one by one, and the flush of a sink on the workers fails once.

python -m tests.spark.programs.desks <folder>
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from malflow import SparkRuntime, StreamProvider
from malflow.sinks import JsonLinesSink, StatelessSink, StatelessSinkImpl
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from tests.kit.spark_session import quiet_session

__all__ = ["DESKS", "FAILED", "GIVEN", "backend_at", "desks"]

DESKS = 60
FAILED, GIVEN = "failed", "given.jsonl"


class Hiccup(StatelessSinkImpl[Any, Any, Any]):
    """A sink whose flush fails once, when half of the desks are given away."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.given = 0

    def sink(self, msg: Any) -> None:
        """Count the desk."""
        self.given += 1

    def flush(self) -> None:
        """Fail, once."""
        mark = Path(self.folder, FAILED)
        if self.given >= DESKS // 2 and not mark.exists():
            mark.touch()
            raise ConnectionError("hiccup")


def backend_at(folder: str) -> FsspecBackend:
    """Return the backend."""
    return FsspecBackend(f"{folder}/state", job="desks")


def desks() -> set[str]:
    """Return all desks."""
    return {f"desk{number}" for number in range(DESKS)}


def give(_key: str, _value: int, free: set[str]) -> tuple[str, set[str]]:
    """Take the first desk in the order of the set."""
    return free.pop(), free


def main(folder: str) -> None:
    """Run on Spark, which tries each task up to four times."""

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(DESKS)))
        given = numbers.key_distribute("key", lambda _: "office").stateful_map("give", give, default=desks)
        given.sink("net", StatelessSink(Hiccup(folder)))
        given.sink("file", JsonLinesSink(f"{folder}/{GIVEN}"))

    with quiet_session(Path(folder, "warehouse"), "local[2, 4]") as spark:
        SparkRuntime(build, backend_at(folder), parallelism=1, spark=spark, max_records_per_tick=8).execute()


if __name__ == "__main__":
    main(sys.argv[1])
