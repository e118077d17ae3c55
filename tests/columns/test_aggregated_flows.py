"""Dataflows that stay columns up to an aggregation, also if they stop and continue by records or on other workers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from malflow.errors import OperatorError
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from tests.columns.drawn_flows import Flow, Source, build, scripts
from tests.columns.test_dataflows import test_columns_give_what_records_give as compare_forms
from tests.columns.test_dataflows import test_snapshots_are_those_of_records as compare_snapshots
from tests.kit.driving import compiled
from tests.windows.test_local_aggregation import seen, wavering, without

_WITH_KERNELS = (
    "count",
    "count of a field",
    "sum",
    "sum of int",
    "sum of floats",
    "min",
    "max of floats",
    "mean",
    "variance",
    "first",
    "last",
    "into",
)

_EXACT = ("count", "count of a field", "sum of int", "min", "max of floats", "first", "last")
"""Those that senders may add up."""

_AGGREGATORS = st.sampled_from([_WITH_KERNELS, _EXACT]).flatmap(
    lambda names: st.lists(st.sampled_from(names), min_size=1, max_size=3).map(tuple)
)

_FLOWS = st.builds(
    Flow,
    every=st.sampled_from([None, 1, 3]),
    bound=st.integers(0, 4),
    per_part=st.booleans(),
    timed=st.sampled_from([True, True, False]),
    key=st.sampled_from(["town", "town", "n", "flag"]),
    before=st.sampled_from(["none", "union", "clones"]),
    after=st.sampled_from(["none", "clones"]),
    end=st.sampled_from(["running", "tumbling", "sliding"]),
    aggregators=_AGGREGATORS,
    guarded=st.just(False),
)

_FORMS = st.sampled_from([("columns", "columns"), ("columns", "dicts"), ("dicts", "columns")])
_WORKERS = st.tuples(st.sampled_from([1, 3]), st.sampled_from([1, 3]))


@given(_FLOWS, scripts(), st.sampled_from([1, 1, 3]))
def test_aggregates_of_columns_are_those_of_records(flow: Flow, drawn: Any, workers: int) -> None:
    compare_forms.hypothesis.inner_test(flow, drawn, workers, shared=True, debug=False)  # type: ignore[attr-defined]


@given(_FLOWS, scripts(), st.integers(0, 4), _FORMS, _WORKERS)
def test_they_continue_in_the_other_form(flow: Flow, drawn: Any, polls: int, forms: Any, workers: Any) -> None:
    compare_snapshots.hypothesis.inner_test(flow, drawn, polls, forms, workers)  # type: ignore[attr-defined]


@given(_FLOWS, scripts(), st.lists(st.booleans(), max_size=6), st.integers(2, 3))
def test_nothing_shows_whether_senders_added_up(flow: Flow, drawn: Any, is_given: list[bool], workers: int) -> None:
    script, zoned = drawn
    flow = replace(flow, end="sliding" if flow.end == "sliding" else "tumbling", after="none")
    found: list[Any] = []
    for change in (without, lambda it: it, partial(wavering, script=is_given)):
        sinks = [VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()]
        source = StatefulSource(Source(script, "columns", zoned=zoned, shared=True))
        program = change(compiled(build(flow, source, zoned, sinks)))
        try:
            results, counts, states = seen(program, sinks[0], [100], workers)
            found.append((results, counts, repr(states)))  # NaN does not equal itself
        except OperatorError as error:
            found.append(error.operator)
    assert found[1] == found[0]
    assert found[2] == found[0]
