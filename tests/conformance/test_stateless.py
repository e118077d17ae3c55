"""The stateless operators, with Malstrom's cases."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import (
    MAX,
    GraphError,
    NoKey,
    OperatorError,
    SingleThreadRuntime,
    StreamProvider,
    agg,
    rendezvous_select,
)
from malflow.sinks import StatelessSink, VecSink
from tests.conformance.dataflow import messages_of, sis, values_of
from tests.kit.log import Log


def test_filter_keeps_what_the_predicate_holds_for(any_parallelism: Any) -> None:
    assert values_of(any_parallelism, range(100), lambda s: s.filter("f", lambda x: x < 42)) == list(range(42))


def test_filter_keeps_the_bound(any_parallelism: Any) -> None:
    assert values_of(any_parallelism, range(100), lambda s: s.filter("f", lambda x: x <= 42)) == list(range(43))


def test_map_with_key_gets_key_and_value(any_parallelism: Any) -> None:
    def rows(stream: Any) -> Any:
        keyed = stream.key_distribute("parity", lambda msg: msg.value % 2)
        totals = keyed.aggregate("total", agg.sum()).map_with_key("row", lambda key, total: [key, total])
        return totals.map_with_key("again", lambda key, row: (key, *row))

    found = messages_of(any_parallelism, range(6), rows)
    assert sorted((it.key, it.value, it.timestamp) for it in found) == sorted(
        (number % 2, (number % 2, number % 2, sum(range(number % 2, number + 1, 2))), number) for number in range(6)
    )


def test_map_with_key_names_the_record_at_which_it_fails(runtime: Any) -> None:
    with pytest.raises(
        OperatorError, match=r"operator 'row' failed at key 'k', value 2, timestamp 1: ZeroDivisionError"
    ):
        messages_of(
            runtime,
            [1, 2],
            lambda s: s.key_local("k", lambda msg: "k").map_with_key("row", lambda key, value: 1 // (value - 2)),
        )


def test_map_with_key_needs_a_keyed_stream() -> None:
    with pytest.raises(GraphError, match=r"operator 'row' needs a keyed stream;.*before \.map_with_key\(\)"):
        messages_of(SingleThreadRuntime, [1], lambda s: s.map_with_key("row", lambda key, value: value))


def test_filter_map_drops_none(any_parallelism: Any) -> None:
    kept = values_of(any_parallelism, range(100), lambda s: s.filter_map("f", lambda x: 2 * x if x < 42 else None))
    assert kept == list(range(0, 84, 2))


def test_filter_map_many_drops_none(any_parallelism: Any) -> None:
    def small(values: Any) -> list[Any]:
        return [2 * value if value < 42 else None for value in values]

    assert values_of(any_parallelism, range(100), lambda s: s.filter_map_many("f", small)) == list(range(0, 84, 2))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda values: values[:-1], r"must return a value for each; it returned 0 values for 1"),
        (lambda values: (value for value in values), r"must return a list with a value for each"),
        (
            lambda values: [1 // value for value in values],
            r"failed at key NoKey, value 0, timestamp 0: ZeroDivisionError",
        ),
    ],
)
def test_filter_map_many_names_what_is_wrong(runtime: Any, function: Any, words: str) -> None:
    with pytest.raises(OperatorError, match=rf"operator 'f' .*{words}"):
        values_of(runtime, [0], lambda s: s.filter_map_many("f", function))


def test_filter_map_many_skips_the_records_at_which_it_fails(runtime: Any) -> None:
    def inverse(values: Any) -> list[Any]:
        return [10 // value for value in values]

    found = values_of(runtime, [1, 0, 2, 0, 0, 5], lambda s: s.filter_map_many("f", inverse, on_error="skip"))
    assert found == [10, 5, 2]


def test_filter_map_parses(any_parallelism: Any) -> None:
    words = ["0", "one", "2", "3", "four"]
    assert values_of(
        any_parallelism, words, lambda s: s.filter_map("f", lambda x: int(x) if x.isdigit() else None)
    ) == [0, 2, 3]


def test_flatten_emits_each_element(any_parallelism: Any) -> None:
    assert values_of(any_parallelism, [[1, 2], [3, 4], [5]], lambda s: s.flatten("f")) == [1, 2, 3, 4, 5]


def test_flat_map_emits_what_the_function_returns_or_yields(any_parallelism: Any) -> None:
    def repeated(value: int) -> Any:
        for _ in range(value):
            yield value

    def build(stream: Any) -> Any:
        lists = stream.flat_map("lists", lambda value: value * [value])
        lazy = stream.flat_map("lazy", lambda value: (value for _ in range(value)))
        return stream.flat_map("yields", repeated).union(lists, lazy)

    assert sorted(values_of(any_parallelism, range(4), build)) == sorted(3 * [1, 2, 2, 3, 3, 3])


def test_flat_map_takes_a_list_as_it_is_when_it_is_returned(any_parallelism: Any) -> None:
    filled: list[int] = []

    def refill(value: int) -> list[int]:
        filled.clear()
        filled.extend([value, -value])
        return filled

    expected = [number for value in range(1, 100) for number in (value, -value)]
    assert values_of(any_parallelism, range(1, 100), lambda s: s.flat_map("f", refill)) == expected


def test_flat_map_keeps_key_time_and_epochs(runtime: Any, log: Log) -> None:
    def build(stream: Any) -> Any:
        on_time, _ = stream.key_distribute("k", lambda m: 7).generate_epochs("e", lambda m, _: m.timestamp)
        flat = on_time.flat_map("f", range)
        return flat.inspect_frontier("epochs", lambda epoch, _: log.append(epoch))

    flat = messages_of(runtime, range(4), build)
    assert [(m.key, m.value, m.timestamp) for m in flat] == [(7, n, at) for at in range(4) for n in range(at)]
    assert log == [0, 1, 2, 3, MAX]


def test_flatten_keeps_key_and_time(any_parallelism: Any) -> None:
    flat = messages_of(any_parallelism, [[1, 2], [3, 4], [5]], lambda s: s.flatten("f"))
    assert [(m.value, m.timestamp) for m in flat] == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)]
    assert all(m.key is NoKey for m in flat)


def test_flatten_takes_uneven_lists(any_parallelism: Any) -> None:
    assert values_of(any_parallelism, [[1, 2, 3], [4, 5], [6]], lambda s: s.flatten("f")) == [1, 2, 3, 4, 5, 6]


def test_inspect_sees_all_and_changes_nothing(any_parallelism: Any, log: Log) -> None:
    words = ["hello", "world", "foo", "bar"]
    out = values_of(any_parallelism, words, lambda s: s.inspect("i", lambda msg, _: log.append(msg.value)))
    assert out == log == words


def test_inspect_sees_messages_that_may_be_kept(any_parallelism: Any, log: Log) -> None:
    class Keeping:
        def __init__(self) -> None:
            self.kept: list[Any] = []

        def __call__(self, msg: Any, _: Any) -> None:
            self.kept.append(msg)
            log.append(self.kept[-2:])  # what is kept stays in the process that has the worker just now

    out = messages_of(any_parallelism, range(100), lambda s: s.inspect("i", Keeping()))
    assert [kept[-1].value for kept in log] == list(range(100))
    assert [kept[-1] for kept in log] == out
    pairs = [kept for kept in log if len(kept) == 2]
    assert pairs
    assert all(before.value < after.value for before, after in pairs)


def test_map_changes_the_type(any_parallelism: Any) -> None:
    assert values_of(any_parallelism, ["hello", "world", "foo", "bar"], lambda s: s.map("m", len)) == [5, 5, 3, 3]


def test_map_doubles(any_parallelism: Any) -> None:
    assert values_of(any_parallelism, range(100), lambda s: s.map("m", lambda x: 2 * x)) == list(range(0, 200, 2))


def test_split_parts_by_flags(any_parallelism: Any) -> None:
    left, right = VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()

    def by_parity(msg: Any, outputs: list[bool]) -> None:
        outputs[msg.value % 2] = True

    def build_dataflow(provider: StreamProvider) -> None:
        even, odd = provider.new_stream().source("source", sis(range(10))).split("parity", by_parity, 2)
        even.sink("left", StatelessSink(left))
        odd.sink("right", StatelessSink(right))

    any_parallelism(build_dataflow).execute()
    assert left.values == [0, 2, 4, 6, 8]
    assert right.values == [1, 3, 5, 7, 9]


def test_a_source_flows_into_a_sink(any_parallelism: Any) -> None:
    assert values_of(any_parallelism, range(10), lambda s: s) == list(range(10))


def test_four_workers_take_all_records(runtime: Any, log: Log) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        (
            provider.new_stream()
            .source("source", sis(range(100)))
            .key_distribute("key", lambda msg: msg.value, rendezvous_select)
            .inspect("seen", lambda msg, ctx: log.append((msg.value, ctx.worker_id)))
        )

    runtime(build_dataflow, parallelism=4).execute()
    assert sorted(value for value, _ in log) == list(range(100))
    assert {worker for _, worker in log} == {0, 1, 2, 3}


def test_cloned_outputs_get_everything(any_parallelism: Any) -> None:
    sinks = [VecSink[Any, Any, Any]() for _ in range(3)]

    def build_dataflow(provider: StreamProvider) -> None:
        for index, stream in enumerate(provider.new_stream().source("source", sis(range(5))).cloned("c", 3)):
            stream.sink(f"sink-{index}", StatelessSink(sinks[index]))

    any_parallelism(build_dataflow).execute()
    assert [sink.values for sink in sinks] == [[0, 1, 2, 3, 4]] * 3


def test_split_drops_and_copies_records(runtime: Any) -> None:
    sinks = [VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()]

    def partitioner(msg: Any, outputs: list[bool]) -> None:
        outputs[0] = msg.value in {1, 2}
        outputs[1] = msg.value in {2, 3}

    def build_dataflow(provider: StreamProvider) -> None:
        for index, stream in enumerate(
            provider.new_stream().source("source", sis(range(5))).split("s", partitioner, 2)
        ):
            stream.sink(f"sink-{index}", StatelessSink(sinks[index]))

    runtime(build_dataflow).execute()
    assert [sink.values for sink in sinks] == [[1, 2], [2, 3]]
