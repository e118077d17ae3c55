"""What every test and doctest finds: hypothesis profiles, and the `run` of the examples in docstrings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from malflow import DataMessage, SingleThreadRuntime, Stream, agg, limit_out_of_orderness
from malflow.aggregators.contract import Aggregator
from malflow.aggregators.fuse import compile_kernel
from malflow.patterns import absent, step
from malflow.sinks import StatelessSink, VecSink
from malflow.sources import SingleIteratorSource, StatelessSource
from malflow.windows import tumbling

pytest_plugins = ["tests.kit.checked_snapshots", "tests.kit.spark_session", "tests.servers.plugin"]

_anyhow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
settings.register_profile("dev", _anyhow, max_examples=25)
settings.register_profile("ci", _anyhow, max_examples=100, derandomize=True)
settings.register_profile("nightly", _anyhow, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

_ROOT = Path(__file__).parent
_SLOW = [
    _ROOT / "tests" / name
    for name in (
        "aggregators/test_laws.py",
        "aggregators/test_restarts.py",
        "aggregators/test_sketches.py",
        "campaign",
        "connectors/delta/test_laws.py",
        "connectors/files/test_s3.py",
        "connectors/files/test_sink_restore.py",
        "connectors/kafka/test_going_back.py",
        "connectors/kafka/test_kills.py",
        "connectors/kafka/test_laws.py",
        "connectors/kafka/test_sink.py",
        "connectors/parquet/test_laws.py",
        "connectors/parquet/test_sink.py",
        "connectors/postgres/test_changes.py",
        "connectors/postgres/test_crashes.py",
        "connectors/postgres/test_going_back.py",
        "connectors/postgres/test_laws.py",
        "connectors/sql/test_kills.py",
        "connectors/sql/test_laws.py",
        "connectors/test_column_crashes.py",
        "connectors/test_columns_laws.py",
        "connectors/test_confirmed_positions.py",
        "connectors/test_frozen_servers.py",
        "connectors/test_pairs.py",
        "connectors/test_s3_crashes.py",
        "connectors/test_s3_page.py",
        "connectors/test_s3_refusals.py",
        "connectors/test_sinks_going_back.py",
        "connectors/test_sources_going_back.py",
        "examples/test_exactly_once_testing.py",
        "examples/test_flight_delays.py",
        "examples/test_snapshot_examples.py",
        "golden",
        "joins/test_asof_join.py",
        "joins/test_cogroup.py",
        "joins/test_equal_keys.py",
        "joins/test_interval_join.py",
        "joins/test_late_cogroup.py",
        "patterns/test_dataflows.py",
        "patterns/test_explained.py",
        "patterns/test_hostile.py",
        "patterns/test_kinds.py",
        "patterns/test_meaning.py",
        "patterns/test_reference.py",
        "patterns/test_settings.py",
        "processes",
        "properties",
        "recovery/test_exhaustive.py",
        "recovery/test_machine.py",
        "recovery/test_planted_bugs.py",
        "recovery/test_scheduler.py",
        "runtime/test_persistence.py",
        "runtime/test_resume.py",
        "runtime/test_user_code.py",
        "selection/test_models.py",
        "servers",
        "snapshot/codecs/test_random_shapes.py",
        "snapshot/test_s3_runs.py",
        "spark/test_idle_time.py",
        "spark/test_leftovers.py",
        "spark/test_takeovers.py",
        "store/test_contract.py",
        "store/test_local.py",
        "store/test_s3.py",
        "test_api_page.py",
        "test_benchmarks.py",
        "test_fresh_install.py",
        "testing/test_exactly_once.py",
        "testing/test_source_laws.py",
        "testing/test_ticks.py",
        "testing/test_trial.py",
        "timers/test_models.py",
        "transactions/test_kills.py",
        "transactions/test_schedules.py",
        "windows/test_counting.py",
        "windows/test_early.py",
        "windows/test_late.py",
        "windows/test_laws.py",
        "windows/test_moved_windows.py",
        "windows/test_rollups.py",
        "windows/test_sessions.py",
        "windows/test_silence.py",
        "windows/test_takeovers.py",
        "windows/test_time_windows.py",
    )
]
"""Tests marked `slow`: state machines, enumerations of faults, servers of S3, programs in processes of
their own, models that are restarted and rescaled."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow folders and files."""
    paths = {item.path for item in items}
    slow = {path for path in paths if any(path.is_relative_to(it) for it in _SLOW)}
    for item in items:
        if item.path in slow:
            item.add_marker("slow")


def run(items: Iterable[Any], build: Callable[[Stream[Any, Any, int]], Stream[Any, Any, Any]]) -> list[Any]:
    """Stream items through what `build` makes of them, and give the values."""
    collected: VecSink[Any, Any, Any] = VecSink()
    SingleThreadRuntime(
        lambda provider: build(
            provider.new_stream().source("items", StatelessSource(SingleIteratorSource(items)))
        ).sink("collected", StatelessSink(collected))
    ).execute()
    return collected.values


def aggregate(aggregator: Aggregator[Any, Any, Any], values: Iterable[Any]) -> Any:
    """Return the aggregator's result for values whose timestamps are 0, 1, 2, ..."""
    kernel, column = compile_kernel([aggregator]), list(values)
    accs: dict[Any, Any] = {}
    kernel.add(accs, [None] * len(column), column, range(len(column)))
    return kernel.result(accs[None])


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(
        absent=absent,
        agg=agg,
        aggregate=aggregate,
        run=run,
        step=step,
        tumbling=tumbling,
        limit_out_of_orderness=limit_out_of_orderness,
        DataMessage=DataMessage,
    )
