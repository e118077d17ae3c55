"""The less common settings of patterns keep their meaning, whatever happens to the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from malflow.sinks import VecSink
from malflow.testing import PAUSE
from tests.kit.driving import Store, compiled, finish
from tests.patterns.specs import Both, Spec, Step, Then, Times, Tree
from tests.patterns.strategies import afters, meaning_of, seldom, specs
from tests.patterns.test_dataflows import Row, matched, rows_of, streams, workers
from tests.windows.model import parted
from tests.windows.running import Item, source_of, windowed_flow

pytestmark = pytest.mark.slow

Add = Callable[[Any], Any]

bounds = st.integers(0, 12)
orders = st.sampled_from(["time", "arrival"])


def results(items: Sequence[Item], bound: int, add: Add) -> list[Row]:
    """Return the rows of a run that nothing happens to."""
    sink: VecSink[Any, Any, Any] = VecSink()
    finish(Store().restore(compiled(windowed_flow(source_of(in_ticks(items)), bound, add, sink)), 1))
    return rows_of(sink)


def disturbed(
    items: Sequence[Item], bound: int, adds: Sequence[Add], data: st.DataObject, *, rescales: bool = True
) -> list[Row]:
    """Return the rows of a run that is restarted and rescaled, each restart with the next program."""
    sink: VecSink[Any, Any, Any] = VecSink()
    source = source_of(in_ticks(items))
    programs = [compiled(windowed_flow(source, bound, add, sink)) for add in adds]
    changes = st.sampled_from(["none", "restart", "rescale" if rescales else "none"])
    store, started = Store(), 0
    run = store.restore(programs[0], data.draw(workers))
    while not run.is_finished:
        run.tick()
        store.commit(run, programs[min(started, len(programs) - 1)])
        change = data.draw(changes)
        if change == "restart":
            run.close()
            started += 1
            run = store.restore(programs[min(started, len(programs) - 1)], data.draw(workers))
        elif change == "rescale":
            run.rescale(data.draw(workers))
    finish(run)
    return rows_of(sink)


def in_ticks(items: Sequence[Item]) -> list[Item]:
    """Return items with a tick for each."""
    return [part for item in items if item is not PAUSE for part in (item, PAUSE)]


def expected(spec: Spec, after: str, items: Sequence[Item], order: Callable[[Any], Any]) -> list[Row]:
    """Return the reference's rows for the times and values of each key in an order."""
    found: list[Row] = []
    for key in "xy":
        history = sorted(((at, value) for k, at, value in items if k == key), key=order)
        meaning = meaning_of(spec, history)
        kinds = {"match": meaning.matches(after), "timeout": meaning.timeouts(after)}
        found += [
            (key, kind, at, tuple((name, history[it][1], history[it][0]) for it, name in choice))
            for kind, told in kinds.items()
            for choice, at in told
        ]
    return found


def tie(value: Any) -> Any:
    """Return what orders values of one timestamp."""
    return value[1], value[0]


@seldom
@given(spec=specs(), after=afters, items=streams, bound=bounds, data=st.data())
def test_ties_are_in_their_order_after_restarts(
    spec: Spec, after: str, items: list[Item], bound: int, data: st.DataObject
) -> None:
    on_time, _, _ = parted([it for it in items if it is not PAUSE], bound)
    found = disturbed(items, bound, [matched(spec, after, ties=tie)], data)
    assert found == expected(spec, after, on_time, lambda event: (event[0], tie(event[1])))


@seldom
@given(spec=specs(), after=afters, items=streams, data=st.data())
def test_order_of_arrival_is_that_of_time_where_they_agree(
    spec: Spec, after: str, items: list[Item], data: st.DataObject
) -> None:
    in_order = sorted((it for it in items if it is not PAUSE), key=lambda item: item[1])
    on_time, _, _ = parted(in_order, 0)
    assume(len(on_time) == len(in_order))
    found = disturbed(in_order, 0, [matched(spec, after, order="arrival")], data)
    assert sorted(found, key=_moment) == sorted(expected(spec, after, in_order, lambda event: event[0]), key=_moment)


def _moment(row: Row) -> Any:
    return row[:3]


@seldom
@given(spec=specs(), after=afters, items=streams, bound=bounds, limit=st.integers(1, 3), order=orders, data=st.data())
def test_the_same_partial_matches_are_dropped_after_restarts(
    spec: Spec, after: str, items: list[Item], bound: int, limit: int, order: str, data: st.DataObject
) -> None:
    add = matched(spec, after, limit=limit, overflow="oldest", order=order)
    assert disturbed(items, bound, [add], data) == results(items, bound, add)


def has_one_way(tree: Tree) -> bool:
    """Whether the events of a partial match alone say what it waits for."""
    match tree:
        case Step() | Both():
            return True
        case Then(left=left, right=right, by=by, without=without):
            return by == "then" and without is None and has_one_way(left) and has_one_way(right)
        case Times(item=item, by=by, without=without):
            return by == "then" and without is None and has_one_way(item)
        case _:
            return False


plain_specs = specs().filter(lambda spec: spec.absent is None and has_one_way(spec.tree))


@seldom
@given(spec=plain_specs, after=st.sampled_from(["end", "start"]), items=streams, bound=bounds, data=st.data())
def test_partial_matches_taken_to_new_versions_go_on(
    spec: Spec, after: str, items: list[Item], bound: int, data: st.DataObject
) -> None:
    adds = [matched(spec, after, version=number, migrate=lambda partials, _: partials) for number in range(1, 20)]
    assert disturbed(items, bound, adds, data, rescales=False) == results(items, bound, adds[0])
