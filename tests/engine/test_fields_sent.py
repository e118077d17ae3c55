"""Exchanges send only the fields of records that the next stage reads, and nobody can see it."""

from __future__ import annotations

from collections import UserDict, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from operator import length_hint
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import OperatorError, SingleThreadRuntime, StreamProvider, agg
from malflow.aggregators.fuse import compile_kernel
from malflow.engine.workers import Workers
from malflow.event_time.tick import Tick
from malflow.nodes import StatefulNode
from malflow.records.rows import Rows, SomeFields, only_fields
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.windows import tumbling
from tests.kit.driving import compiled

TOWNS = ("Ulm", "Bonn", "Kiel", "Jena")

NUMBERS = st.integers() | st.floats(allow_nan=False) | st.booleans()
WHOLE = st.fixed_dictionaries({"town": st.sampled_from(TOWNS), "n": NUMBERS, "note": st.text(max_size=3)})
OTHERS = WHOLE.map(UserDict) | WHOLE.map(lambda value: defaultdict(int, value)) | WHOLE.map(type("Own", (dict,), {}))
LACKING = st.fixed_dictionaries({"town": st.sampled_from(TOWNS)})


def town_of(msg: Any) -> str:
    town: str = msg.value["town"]
    return town


def keyed(provider: StreamProvider, values: list[Any]) -> Any:
    stream = provider.new_stream().source("values", SingleIteratorSource(values))
    timed = stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=2)
    return timed.key_distribute("town", town_of)


def windows(stream: Any) -> Any:
    return stream.window(tumbling(4)).aggregate("windows", agg.count(), agg.sum("n"), agg.last("note"))


def running(stream: Any) -> Any:
    return stream.aggregate("running", agg.max("n"), agg.mean("n"))


def counted(stream: Any) -> Any:
    return stream.window(tumbling(4)).aggregate("counted", agg.count())


def by_functions(stream: Any) -> Any:
    aggregators = agg.count(), agg.sum(lambda value: value["n"]), agg.last(lambda value: value["note"])
    return stream.window(tumbling(4)).aggregate("by functions", *aggregators)


def by_both(stream: Any) -> Any:
    return stream.aggregate("by both", agg.max("n"), agg.mean(lambda value: value["n"] * 2), agg.last("note"))


def by_calls(stream: Any) -> Any:
    return stream.window(tumbling(4)).aggregate("by calls", agg.sum(lambda value: float(value["n"])))


def of_values(stream: Any) -> Any:
    return stream.window(tumbling(4)).aggregate("whole", agg.collect())


def mapped(stream: Any) -> Any:
    return stream.map("mapped", str)


def fields_sent(*readers: Callable[[Any], Any]) -> list[tuple[str, ...] | None]:
    """Return the fields that each exchange sends, of streams that are read alike."""

    def build(provider: StreamProvider) -> None:
        stream = keyed(provider, [])
        for number, read in enumerate(readers):
            read(stream).sink(f"sink {number}", VecSink())

    sent = [None if it.fields is None else tuple(it.fields) for it in compiled(build).channels]
    return [None if names is None else tuple(name.partition(", line")[0] for name in names) for names in sent]


def test_the_fields_are_those_of_all_readers() -> None:
    assert fields_sent(windows) == [("n", "note")]
    assert fields_sent(running, counted) == [("n",)]
    assert fields_sent(counted) == [()]
    assert fields_sent(by_functions) == [("<lambda>(value) 1", "<lambda>(value) 2")]
    assert fields_sent(by_both) == [("n", "<lambda>(value) 2", "note")]


@pytest.mark.parametrize("readers", [(of_values,), (mapped,), (windows, mapped), (by_calls,), (by_functions, by_both)])
def test_whole_values_are_sent_if_one_reader_needs_them(readers: Any) -> None:
    assert fields_sent(*readers) == [None]


def test_late_records_are_whole() -> None:
    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("values", SingleIteratorSource([]))
        timed = stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=2)
        late = timed.late.key_distribute("late towns", town_of)
        results = timed.key_distribute("town", town_of).window(tumbling(4)).allow_late(late, 4)
        results.aggregate("windows", agg.sum("n")).results.sink("sink", VecSink())

    program = compiled(build)
    assert [channel.fields for channel in program.channels] == [None] * len(program.channels)
    (window,) = (vertex.node for vertex in program.vertices if isinstance(vertex.node, StatefulNode))
    assert window.reads is None, "it emits those that are too late"


def run(values: list[Any], read: Callable[[Any], Any], parallelism: int) -> Any:
    """Return the results of each town, or the operator that failed."""
    sink: VecSink[Any, Any, Any] = VecSink()
    runtime = SingleThreadRuntime(
        lambda provider: read(keyed(provider, values)).sink("sink", sink), parallelism=parallelism
    )
    try:
        runtime.execute()
    except OperatorError as error:
        return error.operator
    return {town: [repr(it.value) for it in sink if it.key == town] for town in TOWNS}


@given(
    st.lists(WHOLE | OTHERS | LACKING, max_size=20),
    st.sampled_from([windows, running, counted, by_functions, by_both]),
    st.integers(2, 4),
)
@pytest.mark.slow
def test_results_are_the_same_as_from_whole_values(values: list[Any], read: Any, parallelism: int) -> None:
    assert run(values, read, parallelism) == run(values, read, 1)


def test_records_that_move_have_only_these_fields() -> None:
    values = [{"town": town, "n": number, "note": "x" * 1_000} for number, town in enumerate(TOWNS * 5)]
    program = compiled(lambda provider: counted(keyed(provider, values)).sink("sink", VecSink()))
    moved: list[Mapping[str, Any] | None] = []

    def note(stage: Any, sent: Any) -> None:
        batches = [it for channel in stage.outputs for by in sent[channel.number] for to in by for it in to if len(it)]
        moved.extend(batch.values.columns if type(batch.values) is Rows else None for batch in batches)

    workers = Workers(program, parallelism=2, tracked=False)
    workers.open()
    for _ in range(10):
        workers.run(Tick(limit=100), exchange=note)
    assert moved
    assert set(map(repr, moved)) == {"{}"}


def test_accumulators_are_sent_whole() -> None:
    """A function of a value may be able to read an accumulator as well."""
    values = [(number % 7, number) for number in range(3_000)]

    def build(provider: StreamProvider, sink: VecSink[Any, Any, Any]) -> None:
        stream = provider.new_stream().source("values", SingleIteratorSource(values))
        timed = stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=2)
        windows = timed.key_distribute("keys", lambda msg: msg.value[0]).window(tumbling(1_000))
        windows.aggregate("most", agg.max(lambda value: value[0]), agg.count()).sink("sink", sink)

    found = []
    for parallelism in (1, 3):
        sink: VecSink[Any, Any, Any] = VecSink()
        SingleThreadRuntime(partial(build, sink=sink), parallelism=parallelism).execute()
        found.append(sorted((it.key, it.timestamp, it.value.value) for it in sink))
    assert found[0] == found[1]


def test_an_error_of_a_function_shows_its_record() -> None:
    values = [{"town": "Ulm", "n": 1, "note": ""}, {"town": "Ulm", "note": "lacks n"}]
    with pytest.raises(OperatorError, match=r"operator 'by both' .*'note': 'lacks n'"):
        SingleThreadRuntime(
            lambda provider: by_both(keyed(provider, values)).sink("sink", VecSink()), parallelism=2
        ).execute()


def test_an_error_shows_that_there_were_other_fields() -> None:
    values = [{"town": "Ulm", "n": 1, "note": ""}, {"town": "Ulm", "n": "two", "note": ""}]
    with pytest.raises(OperatorError, match=r"\{'n': 'two', \.\.\.\}"):
        SingleThreadRuntime(
            lambda provider: keyed(provider, values).aggregate("sum", agg.sum("n")).sink("sink", VecSink()),
            parallelism=2,
        ).execute()


def test_some_fields_are_a_dict_with_another_text() -> None:
    assert SomeFields(n=1) == {"n": 1}
    assert repr(SomeFields()) == "{...}"


def test_some_fields_beside_whole_values_and_after_a_look_at_them() -> None:
    """Senders may differ, and a tap makes dicts of columns."""
    aggregators = agg.max(lambda value: value["n"]), agg.sum(lambda value: value["m"] + 1)
    kernel = compile_kernel(aggregators, workers=2)
    whole: list[Any] = [{"n": number, "m": -number, "note": "x"} for number in range(6)]
    fields = kernel.fields
    assert fields is not None
    sent = only_fields(whole, fields)
    assert list(sent) != whole  # the columns are gone now
    for values in ([*sent], sent, [*sent[:3], *whole[3:]], [whole[0], *sent[1:]]):
        accs: dict[Any, Any] = {}
        records, _ = kernel.begin(values)
        kernel.add(accs, ["a"] * 6, records, range(6))
        assert kernel.result(accs["a"]) == (5, -9)


def test_an_error_is_that_of_its_record_beside_some_fields() -> None:
    kernel = compile_kernel([agg.sum(lambda value: value["n"])], workers=2)
    fields = kernel.fields
    assert fields is not None
    records, rest = kernel.begin([*only_fields([{"n": 1}], fields), {"m": 2}, {"n": 3}])
    with pytest.raises(KeyError, match="n"):
        kernel.add({}, "aaa", records, range(3))
    assert length_hint(rest) == 1
