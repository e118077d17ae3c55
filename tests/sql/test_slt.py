"""Files of statements give their results on every runtime, whatever interrupts the run."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from malflow import MultiProcessRuntime, SingleThreadRuntime
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.sinks import VecSink
from malflow.testing import assert_exactly_once
from tests.sql.slt import scripts

SCRIPTS = scripts()
ON_SPARK = sorted(SCRIPTS)[::10]
"""A tenth of the files: a dataflow on Spark takes seconds."""
VALUES: dict[str, dict[str, list[tuple[Any, ...]]]] = {
    "queries": {"queries.union.values": [(9, "none")], "queries.values_alone.t.values": [(1, "x"), (2, "yy")]}
}
"""The rows of VALUES by file: they are sources too. The checks of crashes replace all sources."""


def expected(name: str) -> dict[str, list[str]]:
    """Return the rows of the queries of a file."""
    return {it.name: it.rows for it in SCRIPTS[name].queries}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_file_gives_its_results(name: str, workers: int) -> None:
    assert SCRIPTS[name].run(partial(SingleThreadRuntime, parallelism=workers)) == expected(name)


@pytest.mark.slow
@pytest.mark.nightly(parts=4)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_file_gives_its_results_in_processes(name: str) -> None:
    runtime = partial(MultiProcessRuntime, parallelism=2, processes=2, start_method="forkserver")
    assert SCRIPTS[name].run(runtime) == expected(name)


@pytest.mark.spark
@pytest.mark.parametrize("name", ON_SPARK)
def test_a_file_gives_its_results_on_spark(name: str, spark: Any) -> None:
    assert SCRIPTS[name].run(partial(SparkRuntime, parallelism=2, spark=spark)) == expected(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_file_gives_the_same_results_after_crashes_and_rescales(name: str) -> None:
    script = SCRIPTS[name]
    inputs = {"input": script.items, **VALUES.get(name, {})}
    assert_exactly_once(script.build(lambda _: VecSink()), inputs, max_examples=3)
