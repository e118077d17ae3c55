"""Random dataflows in worker processes agree with the interpreter."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from malflow import MultiProcessRuntime
from tests.properties.agreement import assert_agree
from tests.properties.dataflows import chains, dataflows
from tests.properties.interpreter import interpret
from tests.properties.specs import Dataflow
from tests.properties.together import run_together, travels

pytestmark = pytest.mark.slow


@settings(
    max_examples=max(10, settings().max_examples // 10),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    dataflow=st.one_of(dataflows(), chains()).filter(travels),
    chunk=st.sampled_from([None, 3]),
    processes=st.integers(1, 3),
)
def test_dataflows_agree_in_processes(dataflow: Dataflow, chunk: int | None, processes: int) -> None:
    runtime = partial(
        MultiProcessRuntime,
        parallelism=2 if dataflow.parallel else 1,
        processes=processes,
        start_method="forkserver",
    )
    assert_agree(dataflow, interpret(dataflow), run_together(runtime, [dataflow], chunk))
