"""Runs of a job in a program that a test kills: a snapshot after each tick."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from malflow import SingleThreadRuntime, StreamProvider
from malflow.snapshot import FsspecBackend

__all__ = ["run_job"]


def run_job(
    build: Callable[[StreamProvider], None], backend: FsspecBackend, *, spark_ticks: int = 0, parallelism: int = 1
) -> None:
    """Run a job to its end, with a snapshot after each tick.

    Args:
        build: adds its operators.
        backend: where its snapshots are.
        spark_ticks: how many records a tick on Spark has; 0 if it doesn't run there.
        parallelism: how many workers there are on one thread.
    """
    every = timedelta(microseconds=1)
    if not spark_ticks:
        SingleThreadRuntime(build, backend, every, parallelism).execute()
        return
    from malflow.runtime.spark.runtime import SparkRuntime  # noqa: PLC0415 - needs Java
    from tests.kit.spark_session import quiet_session  # noqa: PLC0415

    with TemporaryDirectory() as folder, quiet_session(Path(folder)) as session:
        SparkRuntime(build, backend, every, 2, spark=session, max_records_per_tick=spark_ticks).execute()
