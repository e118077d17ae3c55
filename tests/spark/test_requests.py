"""Requests to a run on Spark: all of them are answered, whatever ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, RestartPolicy, SparkRuntime, StreamProvider
from malflow.errors import OperatorError, RunFailed, SnapshotError
from malflow.runtime.spark.runtime import SparkHandle
from malflow.sinks import StatelessSinkImpl
from malflow.sources import SingleIteratorSource
from tests.kit.extras import needs
from tests.kit.growing_file import GrowingFile
from tests.kit.waiting import wait_until
from tests.spark.flows import backend_at

SECONDS = 120


def nowhere(_key: Any, workers: Sequence[int]) -> int:
    if len(workers) > 2:
        raise ValueError("too many")
    return workers[0]


def ended(answer: Future[Any]) -> type[BaseException | None]:
    """Wait until a future ends, and return how."""
    try:
        return type(answer.exception(SECONDS))
    except CancelledError:
        return CancelledError


def endless(provider: StreamProvider) -> None:
    numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(10**9)))
    numbers.key_distribute("key", lambda msg: msg.value % 7, nowhere).stateful_map("n", lambda _k, _v, n: (n, n), int)


def rescaled_where_a_key_has_no_place(handle: SparkHandle) -> list[Future[Any]]:
    return [handle.rescale(3), handle.rescale(4), handle.snapshot()]


def ended_from_outside(handle: SparkHandle) -> list[Future[Any]]:
    query = handle.query
    assert query is not None
    asked: list[Future[Any]] = [handle.snapshot(), handle.rescale(2), handle.snapshot()]
    query.stop()
    return asked


@pytest.mark.fault("H3")
@pytest.mark.spark
@pytest.mark.parametrize(
    ("end", "error", "outcomes"),
    [
        (rescaled_where_a_key_has_no_place, OperatorError, [{OperatorError}, {CancelledError}, {CancelledError}]),
        (ended_from_outside, RunFailed, [{CancelledError, RunFailed, type(None)}] * 3),
    ],
)
def test_requests_are_answered_whatever_ends_a_run_on_spark(
    spark: Any, tmp_path: Path, end: Any, error: type[Exception], outcomes: list[set[type[BaseException | None]]]
) -> None:
    handle = SparkRuntime(
        endless,
        backend_at(tmp_path),
        parallelism=1,
        spark=spark,
        max_records_per_tick=100,
        restart=RestartPolicy(0),
    ).start()
    wait_until(lambda: handle.progress.tick > 1)
    asked = end(handle)
    with pytest.raises(error):
        handle.await_termination(SECONDS)
    assert all(ended(answer) in possible for answer, possible in zip(asked, outcomes, strict=True))


@pytest.mark.spark
def test_one_run_at_a_time_and_a_stop_before_it(spark: Any, tmp_path: Path) -> None:
    lines, backend = tmp_path / "lines", backend_at(tmp_path)
    lines.write_text("a\nb\n")
    runtime = SparkRuntime(
        lambda provider: provider.new_stream().source("lines", GrowingFile(lines)), backend, parallelism=1, spark=spark
    )
    runtime.stop()
    runtime.execute()
    handle = runtime.start()
    for again in (runtime.start, runtime.execute):
        with pytest.raises(GraphError, match="this runtime is already running a dataflow; create another one"):
            again()
    wait_until(lambda: handle.progress.records.get("lines") == 2)
    runtime.stop()
    assert handle.await_termination(SECONDS)
    lines.write_text("a\nb\nend\n")
    runtime.execute()
    assert runtime._slot.last is not None
    assert runtime._slot.last.progress.records["lines"] == 1


@pytest.mark.spark
@pytest.mark.parametrize("wait", ["snapshot", "rescale", "explain_time", "await_termination"])
def test_user_code_on_the_driver_can_not_wait_for_its_own_tick(spark: Any, tmp_path: Path, wait: str) -> None:
    handles: Future[SparkHandle] = Future()
    waits: dict[str, Callable[[SparkHandle], Any]] = {
        "snapshot": lambda handle: handle.snapshot().result(SECONDS),
        "rescale": lambda handle: handle.rescale(2).result(SECONDS),
        "explain_time": lambda handle: handle.explain_time(SECONDS),
        "await_termination": lambda handle: handle.await_termination(SECONDS),
    }

    class Waiting(StatelessSinkImpl[Any, Any, Any]):
        on_driver = True

        def sink(self, _msg: Any) -> None:
            waits[wait](handles.result(SECONDS))

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("n", SingleIteratorSource([1])).sink("out", Waiting())

    handle = SparkRuntime(build_dataflow, backend_at(tmp_path), parallelism=1, spark=spark).start()
    handles.set_result(handle)
    with pytest.raises(OperatorError, match="while this code waits for it"):
        handle.await_termination(SECONDS)


@pytest.mark.spark
def test_settings_for_a_session_that_exists_are_refused(spark: Any) -> None:
    del spark
    with pytest.raises(GraphError, match=r"conf has spark\.a, but a session exists already; set it where"):
        SparkRuntime(lambda _: None, conf={"spark.a": "b"}).execute()


def test_an_interval_without_a_place_is_refused() -> None:
    with pytest.raises(GraphError, match=r"needs a persistence; pass persistence=FsspecBackend"):
        SparkRuntime(endless, snapshots=timedelta(seconds=1))


@needs("pyspark", "pandas", "pyarrow")
def test_requests_before_the_start_are_for_the_first_run() -> None:
    runtime = SparkRuntime(lambda _: None, spark=object())  # type: ignore[arg-type] # it never gets that far
    asked = runtime.rescale(2)
    assert runtime.progress.tick == 0
    assert not runtime.explain_time().rows
    with pytest.raises(GraphError):
        runtime.execute()
    assert asked.cancelled()
    with pytest.raises(SnapshotError, match="the run has ended"):
        runtime.rescale(2)
