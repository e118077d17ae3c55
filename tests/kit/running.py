"""For programs that a test kills: a job with a snapshot after each tick, and failpoints around steps of its sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.snapshot import FsspecBackend
from malflow.store.failpoint import failpoint

__all__ = ["add_failpoints", "run_job"]


def run_job(
    build: Callable[[StreamProvider], None],
    backend: FsspecBackend,
    *,
    spark_ticks: int = 0,
    parallelism: int = 1,
    listeners: Sequence[Any] = (),
    **options: Any,
) -> None:
    """Run a job to its end, with a snapshot after each tick.

    Args:
        build: adds its operators.
        backend: where its snapshots are.
        spark_ticks: how many records a tick on Spark has; 0 if it doesn't run there.
        parallelism: how many workers there are on one thread.
        listeners: the listeners of its events.
        options: more of the runtime's.
    """
    every = timedelta(microseconds=1)
    if not spark_ticks:
        SingleThreadRuntime(build, backend, every, parallelism, listeners=listeners, **options).execute()
        return
    from malflow.runtime.spark.runtime import SparkRuntime  # noqa: PLC0415 - needs Java
    from tests.kit.spark_session import quiet_session  # noqa: PLC0415

    with TemporaryDirectory() as folder, quiet_session(Path(folder)) as session:
        SparkRuntime(
            build, backend, every, 2, spark=session, max_records_per_tick=spark_ticks, listeners=listeners, **options
        ).execute()


def add_failpoints(*steps: tuple[type, str, str]) -> None:
    """Add ``before-NAME`` and ``after-NAME`` around methods, each given as its class, the method's name and NAME."""
    for kind, method, name in steps:
        step = getattr(kind, method)

        def between(self: Any, *arguments: Any, step: Any = step, name: str = name) -> Any:
            failpoint(f"before-{name}")
            result = step(self, *arguments)
            failpoint(f"after-{name}")
            return result

        setattr(kind, method, between)
