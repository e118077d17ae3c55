"""Dataflows by field give the same results on columns, on dicts and on objects."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.columns.drawn_flows import Flow, Source, flows, outcome, scripts, zoneless
from tests.kit.backends import in_memory, kept

_IN_ANY_ORDER = {"count", "count of a field", "sum", "sum of int", "min", "max", "max of texts", "mean", "distinct"}
"""Aggregators with results that do not depend on the order between the records of several workers."""


@given(flows(), scripts(), st.sampled_from([1, 1, 3]), st.booleans(), st.integers(0, 7).map(lambda it: it == 0))
def test_columns_give_what_records_give(
    flow: Flow, drawn: tuple[Any, bool], workers: int, shared: bool, debug: bool
) -> None:
    script, zoned = drawn
    if not _IN_ANY_ORDER.issuperset(flow.aggregators) or flow.key == "x":  # -0.0 and 0.0 are one key
        workers = 1
    columns, dicts, objects = (
        outcome(flow, Source(script, form, zoned=zoned, shared=shared), workers=workers, debug=debug)
        for form in ("columns", "dicts", "objects")
    )
    if isinstance(dicts, str):
        assert isinstance(columns, str), (columns, dicts)
        if workers == 1 and not debug:
            assert _cause(columns) == _cause(dicts)
        return
    if workers > 1:  # the order between workers depends on where ticks end
        columns, dicts, objects = ([sorted(it) for it in them] for them in (columns, dicts, objects))
    assert columns == dicts
    assert objects == dicts


def _cause(text: str) -> str:
    """Return the operator and the cause of an error: values are shown in part where only some fields were sent."""
    return text.split(" at key ", maxsplit=1)[0] + text.rsplit("timestamp ", maxsplit=1)[-1]


@given(
    flows(),
    scripts(),
    st.integers(0, 4),
    st.tuples(st.sampled_from(["columns", "dicts"]), st.sampled_from(["columns", "dicts"])),
    st.tuples(st.sampled_from([1, 3]), st.sampled_from([1, 3])),
)
def test_snapshots_are_those_of_records(
    flow: Flow, drawn: tuple[Any, bool], polls: int, forms: tuple[Any, Any], workers: tuple[int, int]
) -> None:
    """Stop in the middle, and go on in the other form or with another number of workers."""
    script, zoned = drawn
    if not _IN_ANY_ORDER.issuperset(flow.aggregators) or flow.key == "x":
        workers = (1, 1)
    half = {part: them[:polls] for part, them in script.items()}
    found, expected = (_in_two_runs(flow, half, script, zoned, them, workers) for them in (forms, ("dicts", "dicts")))
    if any(isinstance(it, str) for it in expected):
        assert [isinstance(it, str) for it in found] == [isinstance(it, str) for it in expected]
        return
    assert found == expected


def _in_two_runs(flow: Flow, half: Any, script: Any, zoned: bool, forms: Any, workers: Any) -> list[Any]:
    backend = in_memory()
    found: list[Any] = []
    for at, polls in enumerate((half, script)):
        source = Source(polls, forms[at], zoned=zoned, shared=bool(at))
        end = "keep" if at == 0 else "finish"
        told = outcome(flow, source, workers=workers[at], persistence=backend, at_end=end)
        if isinstance(told, str):
            return [*found, told]
        found.append(told if workers[at] == 1 else [sorted(it) for it in told])
        if at == 0:
            states = kept(backend).states
            epochs = _told(states.get("epochs", {}))  # parts are written in no order
            found.append([_told(states.get("results", {})), {it: sorted(them) for it, them in epochs.items()}])
    return found


def _told(states: Any) -> Any:
    """Return the states of each worker, as text, in their order."""
    return {worker: [zoneless(repr(it)) for it in them.items()] for worker, them in states.items()}
