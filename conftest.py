"""What every test and doctest finds: hypothesis profiles, and the `run` of the examples in docstrings."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable
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

pytest_plugins = [
    "tests.kit.checked_snapshots",
    "tests.kit.extras",
    "tests.kit.forked_imports",
    "tests.kit.nights",
    "tests.kit.spark_session",
    "tests.kit.spark_together",
    "tests.kit.terminations",
    "tests.servers.plugin",
]

_anyhow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
settings.register_profile("dev", _anyhow, max_examples=25)
settings.register_profile("ci", _anyhow, max_examples=25, derandomize=True)
settings.register_profile("planted", _anyhow, max_examples=100, derandomize=True)
settings.register_profile("nightly", _anyhow, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


gc.disable()  # until all tests are collected: nothing of them is garbage


def pytest_collection_finish() -> None:
    """Leave the tests and all imported modules out of later collections of garbage."""
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processes for ``-n auto``: half as many again as processors.

    Tests wait for servers, processes and Spark half of their time. Twice as many would collect all once more, and make
    tests fail that measure a time.
    """
    processors = os.cpu_count() or 1
    return processors + processors // 2


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
