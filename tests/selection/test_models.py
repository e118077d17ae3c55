"""Operators that drop, hold back or reorder records agree with models that keep all records in lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.sinks import VecSink
from malflow.testing import PAUSE, Timed, assert_exactly_once
from malflow.windows import FOREVER
from tests.kit.driving import Store, compiled, finish
from tests.selection.model import (
    Row,
    ascending,
    batched_rows,
    by_key,
    changed_rows,
    distinct_rows,
    limited_rows,
    on_time,
    sorted_rows,
    throttled_rows,
)
from tests.windows.running import Item, Watch, results_of, source_of, windowed_flow

pytestmark = pytest.mark.slow

keys = st.sampled_from(["a", "b", "c"])
records = st.tuples(keys, st.integers(0, 12), st.integers(0, 2))
streams = st.lists(st.one_of(records, st.just(PAUSE)), max_size=40).map(ascending)
bursts = st.lists(st.integers(0, 2), min_size=5, max_size=40).map(
    lambda steps: [("a", sum(steps[: n + 1]), n % 3) for n in range(len(steps))]
)
"""Records of one key, so close to each other that a limit is felt."""
bounds = st.integers(0, 12)
spans = st.integers(1, 12)
counts = st.integers(1, 4)


def rows_of(items: Sequence[Item], bound: int, add: Callable[[Any], Any], **options: Any) -> list[Row]:
    """Return the records that an operator emits."""
    return [(it.key, it.timestamp, it.value) for it in results_of(items, bound, add, **options)]


workers_and_checks = st.tuples(st.integers(1, 3), st.booleans()).map(
    lambda it: {"parallelism": it[0], "debug": it[1]},
)


@given(items=streams, bound=bounds, within=st.one_of(spans, st.just(FOREVER)), options=workers_and_checks)
def test_distinct_drops_what_is_near_one_that_passed(
    items: list[Item], bound: int, within: Any, options: dict[str, Any]
) -> None:
    rows = rows_of(items, bound, lambda keyed: keyed.distinct("distinct", within=within), **options)
    assert by_key(rows) == by_key(distinct_rows(items, bound, within))


@given(items=streams, bound=bounds, options=workers_and_checks)
def test_changes_pass_only_what_differs(items: list[Item], bound: int, options: dict[str, Any]) -> None:
    rows = rows_of(items, bound, lambda keyed: keyed.changes("changes"), **options)
    assert by_key(rows) == by_key(changed_rows(items, bound))


@given(
    items=st.one_of(streams, bursts),
    bound=bounds,
    n=counts,
    per=spans,
    output=st.integers(0, 1),
    options=workers_and_checks,
)
def test_throttled_keys_spend_tokens(
    items: list[Item], bound: int, n: int, per: int, output: int, options: dict[str, Any]
) -> None:
    rows = rows_of(items, bound, lambda keyed: keyed.throttle("limit", n, per=per, kind="bucket")[output], **options)
    assert by_key(rows) == by_key(throttled_rows(items, bound, n, per)[output])


@given(
    items=st.one_of(streams, bursts),
    bound=bounds,
    n=counts,
    per=spans,
    output=st.integers(0, 1),
    options=workers_and_checks,
)
def test_no_span_has_more_than_its_limit(
    items: list[Item], bound: int, n: int, per: int, output: int, options: dict[str, Any]
) -> None:
    rows = rows_of(items, bound, lambda keyed: keyed.throttle("limit", n, per=per)[output], **options)
    assert by_key(rows) == by_key(limited_rows(items, bound, n, per)[output])


@given(
    items=st.lists(records, max_size=40).map(ascending), bound=bounds, tied=st.booleans(), options=workers_and_checks
)
def test_sorted_records_ascend(items: list[Item], bound: int, tied: bool, options: dict[str, Any]) -> None:
    rows = rows_of(items, bound, lambda keyed: keyed.sort("sort", abs if tied else None), **options)
    expected = sorted_rows(items, bound, abs if tied else (lambda _value: 0))
    assert by_key(rows) == by_key(expected)
    if options["parallelism"] == 1:
        assert rows == expected


@given(items=streams, bound=bounds, size=counts, within=spans, options=workers_and_checks)
def test_lists_are_full_or_their_time_is_over(
    items: list[Item], bound: int, size: int, within: int, options: dict[str, Any]
) -> None:
    rows = rows_of(items, bound, lambda keyed: keyed.batch("lists", size, within=within), **options)
    assert by_key(rows) == by_key(batched_rows(items, bound, size, within))


ADDED: dict[str, Callable[[Any], Any]] = {
    "distinct": lambda keyed: keyed.distinct("it", within=7),
    "distinct for ever": lambda keyed: keyed.distinct("it", within=FOREVER),
    "changes": lambda keyed: keyed.changes("it"),
    "passed": lambda keyed: keyed.throttle("it", 2, per=9)[0],
    "held back": lambda keyed: keyed.throttle("it", 2, per=9)[1],
    "tokens": lambda keyed: keyed.throttle("it", 2, per=9, kind="bucket")[0],
    "sort": lambda keyed: keyed.sort("it"),
    "batch": lambda keyed: keyed.batch("it", 3, within=7),
}
operators = st.sampled_from(sorted(ADDED))


@given(name=operators, items=streams, bound=bounds, data=st.data())
def test_batching_is_invisible(name: str, items: list[Item], bound: int, data: st.DataObject) -> None:
    arrived = [item for item in items if item is not PAUSE]
    cuts = data.draw(st.lists(st.integers(0, len(arrived)), max_size=5))
    cut = list(arrived)
    for at in sorted(cuts, reverse=True):
        cut.insert(at, PAUSE)
    assert rows_of(cut, bound, ADDED[name]) == rows_of(arrived, bound, ADDED[name])


@given(
    name=operators,
    items=streams,
    bound=bounds,
    stop=st.integers(1, 30),
    workers=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_a_restart_changes_nothing(
    name: str, items: list[Item], bound: int, stop: int, workers: tuple[int, int]
) -> None:
    spread = [part for item in items for part in (item, PAUSE)]  # a tick for each record
    undisturbed = rows_of(spread, bound, ADDED[name], parallelism=workers[0])
    sink: VecSink[Any, Any, Any] = VecSink()
    build = windowed_flow(source_of(spread), bound, ADDED[name], sink)
    store, program = Store(), compiled(build)
    run = store.restore(program, workers[0])
    for _ in range(stop):
        if not run.is_finished:
            run.tick()
            store.commit(run, program)
    run.close()
    finish(store.restore(program, workers[1]))
    rows = [(it.key, it.timestamp, it.value) for it in sink]
    assert by_key(rows) == by_key(undisturbed)
    if workers == (1, 1):
        assert rows == undisturbed


@given(name=operators, items=streams, bound=bounds)
def test_time_only_moves_forward(name: str, items: list[Item], bound: int) -> None:
    watch = Watch()
    results_of(items, bound, lambda keyed: ADDED[name](keyed).stateless_op("see", watch))
    watch.assert_forward(at_epochs=name == "sort")


@given(items=streams, bound=bounds, within=spans, kept=st.lists(st.booleans(), min_size=40, max_size=40))
def test_fewer_epochs_give_the_same_records(items: list[Item], bound: int, within: int, kept: list[bool]) -> None:
    """Of the records that are on time with all epochs."""
    arrived = [(key, at, n) for n, (key, at, _) in enumerate(on_time(items, bound))]

    def thinned(msg: Any, _epoch: Any) -> Any:
        return msg.timestamp - bound if kept[msg.value[1]] else None

    for add in (
        lambda keyed: keyed.distinct("it", lambda n: n % 3, within=within),
        lambda keyed: keyed.throttle("it", 2, per=within)[0],
        lambda keyed: keyed.throttle("it", 2, per=within, kind="bucket")[0],
        lambda keyed: keyed.batch("it", 3, within=within),
        lambda keyed: keyed.sort("it"),
    ):
        few = [(it.key, it.timestamp, it.value) for it in results_of(arrived, bound, add, generator=thinned)]
        assert by_key(few) == by_key(rows_of(arrived, bound, add))


@pytest.mark.parametrize("name", ADDED)
def test_selections_are_exactly_once(name: str) -> None:
    items = [Timed(("ab"[n % 2], n % 3), n * 7 % 23 + n) for n in range(20)]
    build = windowed_flow(source_of([]), 9, ADDED[name], VecSink())
    assert_exactly_once(build, {"source": items}, max_examples=10)


@pytest.mark.parametrize("name", ["distinct", "passed", "sort", "batch"])
def test_state_is_dropped_behind_the_epoch(name: str) -> None:
    items = [(f"key {n}", n % 10, n) for n in range(100)]
    build = windowed_flow(source_of([*items, ("last", 1000, 0), PAUSE]), 10, ADDED[name], VecSink())
    program = compiled(build)
    store = Store()
    run = store.restore(program, 1)
    held = []
    while not run.is_finished:
        run.tick()
        store.commit(run, program)
        held.append(len(store.merged("it")))
    run.close()
    assert held[-1] == 1, "only the last record's"


def test_names_of_fields_are_read() -> None:
    items = [("a", n, {"id": n // 2, "n": n}) for n in range(4)]
    values = [row[2]["n"] for row in rows_of(items, 0, lambda keyed: keyed.distinct("it", "id", within=10))]
    assert values == [0, 2]
    assert [row[2]["n"] for row in rows_of(items, 0, lambda keyed: keyed.changes("it", by="id"))] == [0, 2]
