"""``python -m tests.connectors.confirming_program kafka|changes FOLDER ADDRESS NAME [ends]``: count numbers.

NAME is a topic, with a group of that name, or a table, with a slot of that name. There are points before and after each
confirmation. Without ``ends`` the run ends by a signal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from malflow import SingleThreadRuntime, StreamProvider
from malflow.connectors.kafka import KafkaSource
from malflow.connectors.postgres import PostgresChanges
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend
from malflow.snapshot.executors import ThreadExecutor
from malflow.store.failpoint import failpoint

T = TypeVar("T")


class SlowExecutor(ThreadExecutor):
    """Begins late, so that the run is ahead of its snapshots."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue a task, after a pause."""
        super().submit(partial(time.sleep, 0.03))
        return super().submit(work)


def backend(folder: Path) -> FsspecBackend:
    """Return where the job's snapshots are."""
    made = FsspecBackend(str(folder / "state"), job="confirming")
    made._executor = SlowExecutor
    return made


def with_points(reader: Any) -> Any:
    """Return a reader with points before and after each confirmation, which reads slowly."""
    poll, confirm = reader.poll_batch, reader.committed

    def committed(position: Any) -> None:
        failpoint("before-confirm")
        confirm(position)
        failpoint("after-confirm")

    def poll_batch(limit: int) -> Any:
        time.sleep(0.01)
        return poll(1)

    reader.poll_batch = poll_batch
    reader.committed = committed
    return reader


class Topic(KafkaSource):
    """A topic, whose offsets are committed."""

    def build_part(self, part: Any, state: Any) -> Any:
        """Return a reader with points."""
        return with_points(super().build_part(part, state))


class Changes(PostgresChanges):
    """Changes of a table, which a slot holds until they are confirmed."""

    def build_part(self, part: Any, state: Any) -> Any:
        """Return a reader with points."""
        return with_points(super().build_part(part, state))


def main(kind: str, folder: Path, address: str, name: str, *options: str) -> None:
    """Run the job."""
    ends = "ends" in options

    def build(provider: StreamProvider) -> None:
        sources: dict[str, Any] = {
            "kafka": lambda: Topic(name, servers=address, group=name, stop="latest" if ends else None),
            "changes": lambda: Changes(address, [name], slot=name, until="now" if ends else None, require_old=False),
        }
        records = provider.new_stream().source("numbers", sources[kind]()).key_distribute("all", lambda _: "all")
        counts = records.stateful_map("count", lambda _, record, count: (count + 1, count + 1), int)
        counts.sink("out", StatelessSink(VecSink()))

    SingleThreadRuntime(build, backend(folder), timedelta(microseconds=1)).execute()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
