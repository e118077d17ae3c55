"""`skip_none`: records with None in a field are those of another stream; and fields by their place in a tuple."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, OperatorError, SingleThreadRuntime, agg
from malflow.aggregators.fuse import compile_kernel
from malflow.connectors.parquet import ArrowSource
from malflow.operators.columns import are_columns
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.windows import tumbling

EACH: dict[str, tuple[Callable[..., Any], Any]] = {
    "count": (agg.count, 0),
    "sum": (agg.sum, None),
    "sum of integers": (lambda field, **options: agg.sum(field, of=int, **options), None),
    "fsum": (agg.fsum, None),
    "mean": (agg.mean, None),
    "variance": (agg.variance, None),
    "stddev": (agg.stddev, None),
    "min": (agg.min, None),
    "max": (agg.max, None),
    "min_by": (agg.min_by, None),
    "max_by": (agg.max_by, None),
    "first": (agg.first, None),
    "last": (agg.last, None),
    "count_distinct": (agg.count_distinct, 0),
    "approximate": (lambda field, **options: agg.count_distinct(field, approximate=True, **options), 0),
    "quantile": (lambda field, **options: agg.quantile(field, 0.5, **options), None),
    "quantiles": (lambda field, **options: agg.quantiles(field, 0.5, 1, **options), (None, None)),
    "exact_quantiles": (lambda field, **options: agg.exact_quantiles(field, 0.5, **options), (None,)),
    "median": (agg.median, None),
    "largest": (lambda field, **options: agg.largest(2, field, **options), ()),
    "smallest": (lambda field, **options: agg.smallest(2, field, **options), ()),
    "top": (lambda field, **options: agg.top(2, field, **options), ()),
    "top with room": (lambda field, **options: agg.top(2, field, capacity=9, **options), ()),
    "collect": (agg.collect, ()),
    "collect_set": (agg.collect_set, frozenset()),
}
"""Each function with this argument, and its result without a value."""

ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(-4, 4)), max_size=8)


def results(aggregators: list[Any], rows: list[Any], *, debug: bool = False) -> dict[str, Any]:
    """Return the results by key."""
    kernel = compile_kernel(aggregators, debug=debug)
    accs: dict[str, Any] = {}
    kernel.add(accs, [row[0] for row in rows], rows, range(len(rows)))
    return dict(zip(accs, kernel.results(accs.values()), strict=True))


@pytest.mark.parametrize("name", EACH)
@given(ROWS, st.booleans(), st.booleans())
def test_the_result_is_that_of_the_other_records(name: str, rows: list[Any], alone: bool, debug: bool) -> None:
    make, empty = EACH[name]
    made = [make(1, skip_none=True)] + ([] if alone else [agg.count(), agg.sum(1, skip_none=True)])
    plain = agg.count() if name == "count" else make(1)
    times = [(key, at, x) for at, (key, x) in enumerate(rows)]
    kernel = compile_kernel([plain])
    for key, found in results(made, rows, debug=debug).items():
        accs: dict[str, Any] = {}
        left = [(at, (key, x)) for own, at, x in times if own == key and x is not None]
        kernel.add(accs, [key] * len(left), [row for _, row in left], [at for at, _ in left])
        expected = kernel.result(accs[key]) if left else empty
        assert (found if alone else found[0]) == expected


@pytest.mark.parametrize("name", EACH)
@given(st.lists(ROWS, min_size=2, max_size=3))
def test_states_are_merged_whatever_they_have_skipped(name: str, parts: list[list[Any]]) -> None:
    make, empty = EACH[name]
    aggregator = make(1, skip_none=True)
    kernel = compile_kernel([aggregator])
    found: dict[str, Any] = {}
    whole: dict[str, Any] = {}
    for start, rows in enumerate(parts):
        accs: dict[str, Any] = {}
        times = range(100 * start, 100 * start + len(rows))
        kernel.add(accs, [row[0] for row in rows], rows, times)
        found = kernel.merge_by_key(found, accs)
        kernel.add(whole, [row[0] for row in rows], rows, times)
    for key, acc in found.items():
        one, other = kernel.result(acc), kernel.result(whole[key])
        assert one == (pytest.approx(other) if isinstance(other, float) else other)
    assert aggregator.result(aggregator.create()) == empty


@pytest.mark.parametrize("make", [agg.collect, agg.collect_set, agg.count_distinct, agg.variance])
def test_a_merged_state_is_not_shared(make: Any) -> None:
    kernel = compile_kernel([make(1, skip_none=True)])
    accs: dict[str, Any] = {}
    kernel.add(accs, "ab", [("a", None), ("b", 1)], range(2))
    for one, other in (("a", "b"), ("b", "a")):
        merged = kernel.merge(accs[one], accs[other])
        assert merged == accs["b"]
        assert merged is not accs["b"]


@pytest.mark.parametrize(
    ("aggregator", "text"),
    [
        (agg.sum("x", skip_none=True), "agg.sum('x', skip_none=True)"),
        (agg.sum(1, of=int, skip_none=True), "agg.sum(1, of=int, skip_none=True)"),
        (agg.max(skip_none=True), "agg.max(skip_none=True)"),
        (agg.count(0, skip_none=True), "agg.count(0, skip_none=True)"),
        (agg.quantiles(None, 0.5, skip_none=True), "agg.quantiles(None, 0.5, skip_none=True)"),
        (agg.top(2, 3), "agg.top(2, 3)"),
    ],
)
def test_the_definition_says_what_is_skipped(aggregator: Any, text: str) -> None:
    assert repr(aggregator) == text


def test_equal_parts_are_computed_once() -> None:
    kernel = compile_kernel([agg.sum(1, skip_none=True), agg.mean(1, skip_none=True), agg.count(1, skip_none=True)])
    assert len(kernel.slots) == 2


def test_only_none_is_skipped() -> None:
    with pytest.raises(TypeError, match="the item at place 1 is 'x', which is text and not a number"):
        results([agg.sum(1, skip_none=True)], [("a", None), ("a", "x")])
    with pytest.raises(TypeError, match="the item at place 1 is None, which cannot be aggregated"):
        results([agg.sum(1), agg.count(1, skip_none=True)], [("a", None)])


def run(values: list[Any], build: Callable[[Any], Any], workers: int = 1) -> list[Any]:
    """Return the values that a stream of them becomes."""
    return run_source(SingleIteratorSource(values), build, workers)


def run_source(source: Any, build: Callable[[Any], Any], workers: int = 1) -> list[Any]:
    """Return the values that the stream of a source becomes."""
    sink = VecSink[Any, Any, Any]()

    def flow(provider: Any) -> None:
        build(provider.new_stream().source("values", source)).sink("out", sink)

    SingleThreadRuntime(flow, parallelism=workers).execute()
    return sink.values


@pytest.mark.parametrize("workers", [1, 3])
def test_places_are_keys_times_and_fields(workers: int) -> None:
    rows = [(at // 4, "ab"[at % 2], at % 3 or None, at) for at in range(12)]

    def by_place(stream: Any) -> Any:
        keyed = stream.event_time("times", 3, out_of_orderness=0).key_distribute("key", (1, 0))
        return keyed.window(tumbling(6)).aggregate("sums", agg.sum(2, skip_none=True), agg.count(), agg.max_by(3))

    def by_hand(stream: Any) -> Any:
        timed = stream.event_time("times", lambda msg: msg.value[3], out_of_orderness=0)
        keyed = timed.key_distribute("key", lambda msg: (msg.value[1], msg.value[0]))
        some = agg.fold(list, lambda acc, row: [*acc, *([row[2]] if row[2] is not None else [])])
        windows = keyed.window(tumbling(6)).aggregate("sums", some, agg.count(), agg.max_by(lambda row: row[3]))
        return windows.map("sum", lambda it: it._replace(value=(sum(it.value[0]) or None, *it.value[1:])))

    found, expected = ([repr(it) for it in run(rows, build, workers)] for build in (by_place, by_hand))
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((1,), "IndexError: .*; the value has no item at place 2; it has 1 item"),
        ({"town": "Ulm"}, r"KeyError: 2; the value has no places; write the name of an item: \['town'\]"),
        (5, "TypeError: .*; the value has no places"),
    ],
)
def test_a_value_without_the_place_is_named(value: Any, words: str) -> None:
    for build in (
        lambda stream: stream.key_distribute("key", 2),
        lambda stream: stream.key_distribute("key", (2, 3)),
        lambda stream: stream.event_time("time", 2, out_of_orderness=0),
        lambda stream: stream.key_local("key", lambda msg: 1).aggregate("sum", agg.sum(2)),
    ):
        with pytest.raises(OperatorError, match=words):
            run([value], build)


def test_rows_of_columns_have_no_places() -> None:
    table = pa.table({"town": ["Ulm", "Bonn"], "people": [1, 2]})
    for build in (
        lambda stream: stream.key_distribute("key", 0),
        lambda stream: stream.event_time("time", 1, out_of_orderness=0),
        lambda stream: stream.key_distribute("key", "town").aggregate("sum", agg.sum(1)),
    ):
        with pytest.raises(OperatorError, match=r"the value has no places; write the name of an item: \['town', 'peop"):
            run_source(ArrowSource(table), build)


@pytest.mark.parametrize("key", [-1, True, (), ("a", 1), (0, -1), 1.5])
def test_other_keys_than_places_are_refused(key: Any) -> None:
    with pytest.raises(GraphError, match="key_fn"):
        run([(1, 2)], lambda stream: stream.key_distribute("key", key))
    if not isinstance(key, tuple):
        with pytest.raises(GraphError, match="field"):
            agg.sum(key)


def test_columns_without_null_are_added_as_arrays() -> None:
    each = [agg.sum("x", skip_none=True), agg.mean("x", skip_none=True), agg.count("x", skip_none=True)]
    assert are_columns(compile_kernel(each))
    tables = [pa.table({"k": ["a", "b"], "x": pa.array(x, pa.int64())}) for x in ([None, 1], [2, 3], [None, None])]

    def build(stream: Any) -> Any:
        return stream.key_distribute("k", "k").aggregate("each", *each).map_with_key("row", lambda key, it: (key, *it))

    rows = [row for table in tables for row in table.to_pylist()]
    assert run_source(ArrowSource(pa.concat_tables(tables)), build) == run(rows, build)
