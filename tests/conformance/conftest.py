"""The runtimes that every conformance case runs on.

A case that asks for `runtime` runs on one worker; one that asks for `any_parallelism` runs on several as well, and
therefore says nothing about the order over keys. What user code is to tell a case it writes to a `Log`, since it may
run in another process.

On threads, in processes and on Spark, a landing runs the cases of what has a path of its own there, and a quarter of
the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from malflow import MultiProcessRuntime, SingleThreadRuntime
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.snapshot import FsspecBackend
from tests.kit.log import Log
from tests.kit.threads_host import ThreadsRuntime
from tests.planted.bugs import BUGS

SPARK = pytest.mark.spark
SLOW = pytest.mark.slow

OWN_PATHS = {
    *("bad_records", "confirmations", "discovery", "file_sinks", "on_demand", "own_persistence", "parts", "queries"),
    *("replays", "requests", "rescale", "resume", "sinks", "snapshots", "sources", "transactions", "watched_files"),
}
"""The files whose subject runtimes have ways of their own for: reading, writing, snapshots, dead letters, requests."""
FINDERS = {test for bug in BUGS for test in bug.tests}
"""The tests that must find planted bugs, on one thread, on threads or in processes: Spark is left out of the hunt."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave cases on threads, in processes and on Spark to the night where all runtimes do the same."""
    for item in items:
        if item.path.parent == Path(__file__).parent and _is_done_alike(item):
            item.add_marker(pytest.mark.nightly(parts=4))


def _is_done_alike(item: pytest.Item) -> bool:
    """Whether a case is not on a single thread, has no path of its own there, and finds no planted bug."""
    if item.path.stem.removeprefix("test_") in OWN_PATHS:
        return False
    params = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    hosts = [it[0] if isinstance(it, tuple) else it for it in params]
    test, _, _ = item.nodeid.partition("[")
    finds_none = FINDERS.isdisjoint({test, test.partition("::")[0]})
    return "spark" in hosts or (finds_none and ("threads" in hosts or "processes" in hosts))


@pytest.fixture(
    params=[
        "single_thread",
        *(pytest.param(it, marks=SLOW) for it in ("threads", "processes")),
        pytest.param("spark", marks=SPARK),
    ]
)
def runtime(request: pytest.FixtureRequest) -> Any:
    """Return a runtime of one worker."""
    return _runtime(request, request.param, 1)


@pytest.fixture(
    params=[
        ("single_thread", 1),
        ("single_thread", 3),
        pytest.param(("threads", 2), marks=SLOW),
        pytest.param(("processes", 2), marks=SLOW),
        pytest.param(("spark", 2), marks=SPARK),
    ],
    ids=[
        "single_thread-one_worker",
        "single_thread-three_workers",
        "threads-two_workers",
        "processes-two_workers",
        "spark-two_workers",
    ],
)
def any_parallelism(request: pytest.FixtureRequest) -> Any:
    """Return a runtime of one worker, then one of several."""
    return _runtime(request, *request.param)


def _runtime(request: pytest.FixtureRequest, name: str, parallelism: int) -> partial[Any]:
    if name == "single_thread":
        return partial(SingleThreadRuntime, parallelism=parallelism)
    if name == "threads":
        return partial(ThreadsRuntime, parallelism=parallelism)
    if name == "processes":
        return partial(MultiProcessRuntime, parallelism=parallelism, processes=parallelism, start_method="forkserver")
    session = request.getfixturevalue("spark")
    differs = request.node.get_closest_marker("differs_on_spark")
    if differs is not None:
        request.applymarker(pytest.mark.xfail(strict=True, reason=differs.args[0]))
    return partial(SparkRuntime, parallelism=parallelism, spark=session)


@pytest.fixture
def new_log(tmp_path: Path) -> Callable[[], Log]:
    """Return a function that makes a log for user code to write to."""
    count = iter(range(1000))
    return lambda: Log(tmp_path / f"log-{next(count)}")


@pytest.fixture
def log(new_log: Callable[[], Log]) -> Log:
    """Return a log for user code to write to."""
    return new_log()


@pytest.fixture
def store(tmp_path: Path) -> FsspecBackend:
    """Return a backend that every process reaches."""
    return FsspecBackend(str(tmp_path / "kept"))
