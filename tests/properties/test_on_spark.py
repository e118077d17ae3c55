"""Random dataflows on Spark agree with the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from malflow.runtime.spark.runtime import SparkRuntime
from tests.kit.log import Log
from tests.properties.agreement import assert_agree
from tests.properties.building import Run, build
from tests.properties.dataflows import chains, dataflows
from tests.properties.interpreter import interpret
from tests.properties.specs import Dataflow

pytestmark = pytest.mark.slow

EXAMPLES = max(3, settings().max_examples // 33)
"""How many; each takes seconds."""


HIDDEN = frozenset({"hold", "announce"})
"""Stateless operators whose object keeps something: there is one in each process, and workers move between these."""


def travels(dataflow: Dataflow) -> bool:
    return not any(step.kind == "stateless_op" and step.arg in HIDDEN for step in dataflow.steps)


@pytest.mark.fault("I14")
@pytest.mark.spark
@settings(
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to make one smaller would take hours
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    several=st.lists(st.one_of(dataflows(), chains()).filter(travels), min_size=4, max_size=4),
    chunk=st.sampled_from([None, 3]),
    most=st.sampled_from([None, 4]),
)
def test_dataflows_agree_on_spark(spark: Any, several: list[Dataflow], chunk: int | None, most: int | None) -> None:
    """Several dataflows share a query, which takes longer to start than to run."""
    named = [_named(dataflow, f"{number}: ") for number, dataflow in enumerate(several)]
    for parallelism in (1, 2):
        together = [dataflow for dataflow in named if dataflow.parallel == (parallelism == 2)]
        if together:
            result = _run(spark, together, parallelism, chunk, most)
            for dataflow in together:
                assert_agree(dataflow, interpret(dataflow), result)


def _named(dataflow: Dataflow, prefix: str) -> Dataflow:
    return replace(dataflow, steps=tuple(replace(step, name=prefix + step.name) for step in dataflow.steps))


def _run(spark: Any, together: Sequence[Dataflow], parallelism: int, chunk: int | None, most: int | None) -> Run:
    def build_all(provider: Any) -> None:
        for dataflow in together:
            build(dataflow, provider, chunk, result)

    with TemporaryDirectory() as folder:
        numbers = iter(range(1000))
        result = Run(new_log=lambda: Log(Path(folder, str(next(numbers)))))
        SparkRuntime(
            build_all,
            parallelism=parallelism,
            spark=spark,
            max_records_per_tick=most,
            debug=all(dataflow.debug for dataflow in together),
        ).execute()
        result.settle()
        result.records = {name: list(records) for name, records in result.records.items()}
        result.marks = {name: list(marks) for name, marks in result.marks.items()}
    return result
