"""Random dataflows on Spark agree with the interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from malflow.runtime.spark.runtime import SparkRuntime
from tests.properties.agreement import assert_agree
from tests.properties.dataflows import chains, dataflows
from tests.properties.interpreter import interpret
from tests.properties.specs import Dataflow
from tests.properties.together import named, run_together, travels

pytestmark = pytest.mark.slow

EXAMPLES = max(3, settings().max_examples // 33)
"""How many; each takes seconds."""


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
@pytest.mark.nightly
def test_dataflows_agree_on_spark(spark: Any, several: list[Dataflow], chunk: int | None, most: int | None) -> None:
    """Several dataflows share a query, which takes longer to start than to run."""
    prefixed = [named(dataflow, f"{number}: ") for number, dataflow in enumerate(several)]
    for parallelism in (1, 2):
        together = [dataflow for dataflow in prefixed if dataflow.parallel == (parallelism == 2)]
        if together:
            new_runtime = partial(SparkRuntime, parallelism=parallelism, spark=spark, max_records_per_tick=most)
            result = run_together(new_runtime, together, chunk)
            for dataflow in together:
                assert_agree(dataflow, interpret(dataflow), result)
