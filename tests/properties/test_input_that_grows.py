"""A job whose input ends, grows and ends again has the results of one run over all of the input."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from malflow import NoKey, SingleThreadRuntime
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from tests.campaign.endpoints import PacedSource
from tests.kit.backends import in_memory
from tests.properties.agreement import assert_agree
from tests.properties.building import Run, build
from tests.properties.dataflows import chains, dataflows
from tests.properties.interpreter import interpret
from tests.properties.specs import Dataflow, Step

pytestmark = pytest.mark.slow

HIDDEN = frozenset({"hold", "announce"})
"""Stateless operators whose object keeps records, which no snapshot has."""


def resumes(dataflow: Dataflow) -> bool:
    """Whether time does not depend on which input ended first, and no state is hidden."""
    sources = [step for step in dataflow.steps if step.kind == "source"]
    if any(step.kind == "stateless_op" and step.arg in HIDDEN for step in dataflow.steps):
        return False
    if len(sources) == 1 and len(sources[0].arg) == 1:
        return True
    timed = ("generate_epochs", "event_time", "late_window")
    return all(step.arg == "never" for step in dataflow.steps if step.kind in timed)


@given(
    dataflow=st.one_of(dataflows(), chains()).filter(resumes),
    parallelism=st.integers(1, 3),
    cuts=st.lists(st.integers(0, 24), min_size=1, max_size=3).map(sorted),
)
def test_an_input_that_grows_gives_what_one_run_gives(dataflow: Dataflow, parallelism: int, cuts: list[int]) -> None:
    assume(dataflow.parallel or parallelism == 1)
    backend, result = in_memory(), Run()
    for most in cuts:
        _run(dataflow, parallelism, backend, result, most, at_end="keep")
    _run(dataflow, parallelism, backend, result, None, at_end="finish")
    result.settle()
    for step in sorted({step.kind for step in dataflow.steps}):
        event(step)
    assert_agree(dataflow, interpret(dataflow), result)


def _run(
    dataflow: Dataflow, parallelism: int, backend: FsspecBackend, result: Run, most: int | None, *, at_end: Any
) -> None:
    """Run to the end of the first so many records of each part; None is all of them."""
    source = partial(_source, most)
    SingleThreadRuntime(
        lambda provider: build(dataflow, provider, None, result, source=source),
        backend,
        parallelism=parallelism,
        debug=dataflow.debug,
        at_end=at_end,
    ).execute()
    if most is not None:
        result.turn_over()


def _source(most: int | None, step: Step) -> StatefulSource:
    scripts = {
        "all" if part.key is NoKey else part.key: list(zip(part.values, part.timestamps, strict=True))[:most]
        for part in step.arg
    }
    return StatefulSource(PacedSource(scripts, [], keyed=step.arg[0].key is not NoKey))
