"""The runtimes that every conformance case runs on.

A case that asks for `runtime` runs on one worker; one that asks for `any_parallelism` runs on several as well, and
therefore says nothing about the order over keys. What user code is to tell a case it writes to a `Log`, since it may
run in another process.

On threads, in processes and on Spark, a landing runs the cases of what has a path of its own there, but for the
longest, and a quarter of the others.
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
LONG = {
    "test_a_file_that_is_new_to_a_job_is_exact_from_its_first_line",
    "test_a_log_that_is_rotated_while_it_is_watched",
    "test_a_parked_key_is_replayed_in_its_order",
    "test_a_query_finds_the_state_of_a_part",
    "test_a_run_that_goes_on_keeps_what_was_written",
    "test_a_source_that_discovers_after_its_parts",
    "test_a_start_at_the_end_of_the_input_takes_no_snapshot",
    "test_any_retained_snapshot_can_be_restored_by_its_id",
    "test_codec_and_compression_preserve_the_state",
    "test_compressed_file_is_exact_after_several_failures",
    "test_compression_can_be_changed",
    "test_confirmations_while_the_run_goes_on",
    "test_damaged_newest_snapshot_stops_the_run_by_default",
    "test_growing_files_are_counted_once_in_spite_of_failures",
    "test_no_confirmation_of_failed_snapshots",
    "test_parts_in_another_order_and_parts_left_out_for_a_while",
    "test_parts_meet_keys_that_are_hashed",
    "test_progress_has_each_part_with_its_worker",
    "test_retention_is_by_count_and_leaves_no_unused_file",
    "test_rows_of_csv_have_one_header_a_file_after_a_failure",
    "test_starts_at_the_end_of_the_input_take_no_snapshots",
    "test_states_follow_their_parts_to_any_number_of_workers",
    "test_states_of_equal_parts_that_never_meet",
    "test_streams_keyed_by_equal_parts_meet",
    "test_tables_of_parts_are_joined_by_other_keys",
    "test_the_output_of_the_end_is_visible_once_over_restarts",
    "test_windows_and_late_records_of_parts",
}
"""The longest tests of these files: a shorter one of the same file goes the same way of the runtime by day."""

ON_ONE_THREAD = {"tests/conformance/test_time.py", "tests/conformance/test_why.py::test_each_cause_is_named"}
"""Tests that find their planted bugs on a single thread: these are in what all runtimes share."""

FINDERS = {test for bug in BUGS for test in bug.tests} - ON_ONE_THREAD
"""The tests that must find planted bugs, on one thread, on threads or in processes: Spark is left out of the hunt."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave cases on threads, in processes and on Spark to the night where all runtimes do the same."""
    for item in items:
        if item.path.parent == Path(__file__).parent and _is_done_alike(item):
            item.add_marker(pytest.mark.nightly(parts=4))


def _is_done_alike(item: pytest.Item) -> bool:
    """Whether a case is not on a single thread, has no path of its own there, and finds no planted bug."""
    if item.path.stem.removeprefix("test_") in OWN_PATHS and getattr(item, "originalname", "") not in LONG:
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
