"""A run without end: ``python -m tests.spark.programs.endless STATE JOB [SCRATCH]``."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from malflow import SparkRuntime, StreamProvider
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition


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


def main() -> None:
    backend = FsspecBackend(sys.argv[1], job=sys.argv[2])
    place = sys.argv[3] if len(sys.argv) > 3 else None
    often = timedelta(seconds=0.2)
    SparkRuntime(build, backend, often, 2, max_records_per_tick=100, scratch=place).execute()


if __name__ == "__main__":
    main()
