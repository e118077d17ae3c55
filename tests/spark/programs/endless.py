"""Two runs without end in one session, the second with a scratch folder of the user's.

Run it as ``python -m tests.spark.programs.endless STATE SCRATCH``; the jobs are "killed" and "also-killed".
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import SparkRuntime, StreamProvider
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from tests.kit.spark_session import started_session


class Numbers(StatefulSourceImpl[str, int, int, int]):
    """All of them."""

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, part: str, state: int | None) -> Part:
        return Part(state or 0)


class Part(StatefulSourcePartition[int, int, int]):
    """The reader of `Numbers`."""

    def __init__(self, at: int) -> None:
        self.at = at

    def poll(self) -> tuple[int, int]:
        self.at += 1
        return self.at, self.at

    def snapshot(self) -> int:
        return self.at

    def is_finished(self) -> bool:
        return False


def count(_key: Any, _value: int, so_far: int) -> tuple[int, int]:
    return so_far + 1, so_far + 1


def build(provider: StreamProvider) -> None:
    keyed = (
        provider.new_stream().source("numbers", StatefulSource(Numbers())).key_distribute("key", lambda m: m.value % 7)
    )
    keyed.stateful_map("count", count, default=int)


def endless(state: str, job: str, session: Any, scratch: str | None) -> SparkRuntime:
    """Make a runtime of a job that counts until it is stopped."""
    backend = FsspecBackend(state, job=job)
    return SparkRuntime(
        build, backend, timedelta(seconds=0.2), 2, max_records_per_tick=100, spark=session, scratch=scratch
    )


def main() -> None:
    state, scratch = sys.argv[1:]
    session = started_session(Path(state, "warehouse"))
    places = {"killed": None, "also-killed": scratch}
    for handle in [endless(state, job, session, place).start() for job, place in places.items()]:
        handle.await_termination()


if __name__ == "__main__":
    main()
