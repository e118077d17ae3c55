"""Hundreds of short runs in one session: their use of resources must not grow."""

from __future__ import annotations

import os
import random
import tempfile
import threading
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from malflow import SparkRuntime
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from tests.campaign.attack import descendants, python_workers
from tests.campaign.cases import Campaign, Difference
from tests.kit.spark_session import quiet_session
from tests.spark.flows import expected_sums, kept_sums, sums

__all__ = ["many"]

RUNS = 500
_TOLD = 25
"""After how many runs it is counted."""

_MOST = {"threads": 3, "java threads": 12, "folders": 0, "files": 8, "java objects": 100, "workers": 2}
"""By how much each count may be above what it was after the first runs."""

_EACH_RUN = {"threads": 1, "files": 1}
"""What PySpark itself leaves of each query with `foreachBatch`: the thread that Java calls, and its socket."""

_MOST_MEGABYTES = {"megabytes": 60, "java megabytes": 60, "worker megabytes": 80}


def many(campaign: Campaign) -> None:
    """Run as many short runs as the size says, 500 by default, over and over until the time is up."""
    for seed in campaign.seeds():
        campaign.attempt(seed, partial(_case, seed, campaign.size or RUNS))


def _case(seed: int, runs: int) -> str:
    rng = random.Random(seed)
    with TemporaryDirectory() as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            with quiet_session(Path(folder, "warehouse"), "local[2]") as spark:
                return _runs(rng, runs, spark, Path(folder))
        finally:
            tempfile.tempdir = before


def _runs(rng: random.Random, runs: int, spark: Any, folder: Path) -> str:
    first: dict[str, float] = {}
    now: dict[str, float] = {}
    for number in range(1, runs + 1):
        _one(rng, spark, folder / "jobs" / str(number))
        if number % _TOLD == 0 or number == runs:
            now = _counts(spark, folder)
            first = first or now
            print(f"  after {number} runs: {now}", flush=True)
    for name, most in {**_MOST, **_MOST_MEGABYTES}.items():
        if now[name] > first[name] + most + _EACH_RUN.get(name, 0) * max(0, runs - _TOLD):
            raise Difference(f"{name} grew from {first[name]} to {now[name]} in {runs} runs")
    return f"{runs} runs: {first} at first, {now} at the end"


def _one(rng: random.Random, spark: Any, folder: Path) -> None:
    size, parallelism = rng.randint(0, 40), rng.randint(1, 3)
    out: VecSink[Any, Any, Any] = VecSink()
    backend = FsspecBackend(str(folder), job="sums")
    keeps = (backend,) if rng.random() < 0.5 else ()
    SparkRuntime(sums(size, out), *keeps, parallelism=parallelism, spark=spark, name=f"run {rng.random()}").execute()
    if len(out) != 3 * size:
        raise Difference(f"{len(out)} records of {3 * size}")
    if keeps and kept_sums(backend) != expected_sums(size):
        raise Difference(f"sums: {kept_sums(backend)}")


def _counts(spark: Any, folder: Path) -> dict[str, float]:
    """Count what a run might leave behind; of memory, megabytes."""
    from py4j.finalizer import ThreadSafeFinalizer  # noqa: PLC0415 - only the extra has it

    java = spark._jvm.java.lang
    java.System.gc()
    runtime = java.Runtime.getRuntime()
    return {
        "threads": threading.active_count(),
        "java threads": java.Thread.getAllStackTraces().size(),
        "folders": sum(it.name.startswith("malflow-") for it in folder.iterdir()),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "java objects": len(ThreadSafeFinalizer.finalizers),
        "workers": len(python_workers()),
        "processes": len(descendants()),
        "megabytes": _resident(os.getpid()),
        "worker megabytes": max(map(_resident, python_workers()), default=0),
        "java megabytes": (runtime.totalMemory() - runtime.freeMemory()) >> 20,
    }


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20
