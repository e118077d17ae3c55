"""Write the golden files of the format that this malflow writes: ``python -m tests.golden.write``, in a clean checkout.

To be run once, when a format version or a kind of state is new; it leaves what is there as it is.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import Compression, FsspecBackend
from malflow.snapshot.executors import InlineExecutor
from malflow.snapshot.protocol.manifest import FORMAT
from malflow.store.retry import SystemContext
from tests.golden.everywhere import build_broadcasts
from tests.golden.limited import build_limits
from tests.golden.matched import build_patterns
from tests.golden.members import build_members
from tests.golden.moments import build_moments
from tests.golden.parted import build_parts
from tests.golden.program import CODECS, Parts, build_dataflow, events
from tests.golden.rolled_up import build_rollups
from tests.golden.stated import build_statements
from tests.golden.tabled import build_tables
from tests.golden.windowed import build_windows, readings

__all__ = ["JOBS", "PACKED", "PLACED", "Job", "backend_of", "main", "run", "run_windows"]

KEY = "the signing key of the golden files"
NOW = datetime(2026, 1, 1, tzinfo=UTC)

Build = Callable[[StreamProvider, Any, dict[str, VecSink[Any, Any, Any]]], None]
"""Adds operators behind the source of the readings, and sinks by name."""


class Job(NamedTuple):
    """The settings that a job was written with."""

    name: str
    codec: str
    compression: Any
    signed: bool
    parallelism: int


JOBS = (
    Job("pickle-lz4-signed", "pickle", "lz4", True, 2),
    Job("pickle-none-unsigned", "pickle", "none", False, 1),
    Job("msgpack-lz4-unsigned", "msgpack", "lz4", False, 3),
    Job("msgpack-none-signed", "msgpack", "none", True, 2),
)
ZLIB = Compression("zlib-9", lambda raw: zlib.compress(raw, 9), zlib.decompress)
PACKED = (
    Job("pickle-zstd-signed", "pickle", "zstd", True, 2),
    Job("msgpack-zlib-unsigned", "msgpack", ZLIB, False, 3),
)
"""Jobs with data files of version 2."""

PLACED = Job("pickle-lz4-signed", "pickle", "lz4", True, 3)


def backend_of(job: Job, folder: Path) -> FsspecBackend:
    """Return the backend of a job in a folder."""
    made = FsspecBackend(
        str(folder),
        job=job.name,
        codec=CODECS[job.codec],
        compression=job.compression,
        signing_key=KEY if job.signed else None,
        retain=2,
        growth=1e9,
    )
    made._executor = InlineExecutor
    return made


def run(job: Job, backend: FsspecBackend, sink: Parts, **options: Any) -> None:
    """Run the dataflow until its source ends, with a snapshot whenever the changing key changes, and at the end."""
    due: list[Callable[[], object]] = []

    def build(provider: StreamProvider) -> object:
        return build_dataflow(provider, events(), sink, lambda: [take() for take in due])

    runtime = SingleThreadRuntime(build, backend, **{"parallelism": job.parallelism, **options})
    due.append(runtime.snapshot)
    runtime.execute()


def run_windows(
    job: Job, backend: FsspecBackend, build: Build = build_windows, runtime: Any = SingleThreadRuntime, **options: Any
) -> dict[str, VecSink[Any, Any, Any]]:
    """Run a dataflow over the readings until its source ends; return its sinks."""
    sinks: dict[str, VecSink[Any, Any, Any]] = {}
    runtime(
        lambda provider: build(provider, readings(), sinks),
        backend,
        at_end="finish",
        **{"parallelism": job.parallelism, **options},
    ).execute()
    return sinks


def main() -> None:
    """Write the jobs of each folder that does not exist."""
    builds: dict[str, tuple[Build, Sequence[Job]]] = {
        f"format-{FORMAT}": (build_windows, JOBS),
        "rollups": (build_rollups, JOBS),
        "patterns": (build_patterns, JOBS),
        "limits": (build_limits, JOBS),
        "tables": (build_tables, JOBS),
        "broadcasts": (build_broadcasts, JOBS),
        "statements": (build_statements, JOBS),
        "moments": (build_moments, [PLACED]),
        "members": (build_members, [PLACED]),
        "parts": (build_parts, [PLACED]),
        "dealt": (build_parts, [PLACED]),
        "packed": (build_windows, PACKED),
    }
    for name, (build, jobs) in builds.items():
        folder = Path(__file__).parent / name
        if folder.exists():
            print(f"{folder} is there already; what was once written stays as it is")
        else:
            write(folder, build, jobs)


def write(folder: Path, build: Build, jobs: Sequence[Job]) -> None:
    """Write all jobs of a dataflow."""
    tokens = count(1)
    for job in jobs:
        backend = backend_of(job, folder)
        backend._environment = SystemContext(token=lambda: f"{next(tokens):016x}", now=lambda: NOW)
        run_windows(job, backend, build)


if __name__ == "__main__":
    main()
