"""Each state of random dataflows is read as a restored run has it, with any number of workers."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, StreamProvider
from malflow.snapshot import FsspecBackend
from tests.kit.jobs import steady
from tests.kit.memory_store import MemoryStore
from tests.properties.building import Run, build, keyed_states
from tests.properties.dataflows import dataflows
from tests.properties.specs import Dataflow
from tests.reading.restored import check_read

pytestmark = pytest.mark.slow


@given(dataflow=dataflows(), workers=st.integers(1, 3), others=st.integers(1, 4))
def test_states_of_random_dataflows_are_read_as_they_are_restored(
    dataflow: Dataflow, workers: int, others: int
) -> None:
    states = keyed_states(dataflow)
    if not dataflow.parallel:
        workers = others = 1
    elif any(spec.placement is None for spec in states):
        others = workers

    def flow(provider: StreamProvider) -> None:
        build(dataflow, provider, 2, Run())

    backend = FsspecBackend(store=MemoryStore(), allow_unsigned_pickle=True)
    steady(backend)
    SingleThreadRuntime(flow, backend, parallelism=workers, at_end="keep").execute()
    for kind in sorted(check_read(flow, backend, others)):
        event(kind)
