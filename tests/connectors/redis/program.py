"""``python -m tests.connectors.redis.program FOLDER URL NAME [spark]``: sums of a stream into NAME:sums.

Each number gives two rows, so that a reader who sees one without the other has seen a part of a transaction.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from malflow import StreamProvider
from malflow.connectors.redis import RedisSink, RedisStreamSource
from malflow.connectors.redis.stream import StreamReader
from malflow.store.failpoint import failpoint
from tests.kit.backends import at_once
from tests.kit.running import run_job


class SmallTicks(RedisStreamSource):
    """Reads a few entries a tick."""

    def build_part(self, part: str, state: Any) -> StreamReader:
        """Return a reader that is asked for a few."""
        reader = super().build_part(part, state)
        reader.__dict__["poll_batch"] = partial(_few_of, reader)
        return reader


class Sink(RedisSink[Any, Any, Any]):
    """Passes points before and after its commits."""

    def commit(self, handles: Sequence[Any]) -> None:
        """Commit transactions."""
        failpoint("sink-commit")
        super().commit(handles)
        failpoint("sink-after-commit")


def _few_of(reader: StreamReader, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
    return StreamReader.poll_batch(reader, min(limit, 20))


def main(folder: Path, url: str, name: str, *options: str) -> None:
    """Run the job to the end of the stream."""

    def build(provider: StreamProvider) -> None:
        source = SmallTicks(url, name, field="n", decode=int, stop="latest")
        numbers = provider.new_stream().source("numbers", source)
        sums = numbers.stateful_map("sum", lambda _, number, total: (total + number, total + number), int)
        pairs = sums.flat_map("pairs", lambda total: [("left", total), ("right", total)])
        keyed = pairs.key_distribute("side", lambda msg: msg.value[0]).map("total", lambda pair: pair[1])
        keyed.sink("sums", Sink(url, table=f"{name}:sums"))

    backend = at_once(folder, job="sums", codec="msgpack")
    run_job(build, backend, spark_ticks=100 if "spark" in options else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
