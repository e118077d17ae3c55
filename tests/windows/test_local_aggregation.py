"""Records that are aggregated before they are sent: nobody can see it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from malflow import DataMessage, OperatorError, SingleThreadRuntime, StreamProvider, agg
from malflow.agg import Aggregator
from malflow.aggregators.exactness import Accumulated
from malflow.engine.plan import Channel, Program, Stage
from malflow.operators.windows.local_aggregate import LocalAggregate, Worth
from malflow.records.batch import Batch
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing.driven import DrivenRun
from malflow.testing.scripted import PAUSE, ScriptedSource, Timed
from malflow.windows import Windows, counting, session, sliding, tumbling
from tests.kit.driving import compiled

PARTS = ("a", "b", "c")


class Joined(Aggregator[Any, Any, str]):
    """The texts of all values, in order: shows any change of order."""

    exact = True

    def create(self) -> list[str]:
        return []

    def add(self, acc: list[str], value: Any, timestamp: Any) -> list[str]:
        acc.append(repr(value["n"]))
        return acc

    def merge(self, one: list[str], other: list[str]) -> list[str]:
        return one + other

    def result(self, acc: list[str]) -> str:
        return " ".join(acc)


def number_of(value: dict[str, Any]) -> Any:
    return value["n"]


IN_ANY_ORDER = [
    agg.count(),
    agg.count(number_of),
    agg.fsum("n"),
    agg.median("n"),
    agg.quantiles(number_of, 0, 1),
    agg.count_distinct("n"),
    agg.count_distinct("n", approximate=True),
]
IN_ORDER = [
    agg.min("n"),
    agg.max(number_of),
    agg.min_by("n"),
    agg.max_by("n"),
    agg.first("n"),
    agg.last(),
    agg.smallest(2, "n"),
    agg.exact_quantiles("n", 0.5),
    Joined(),
]
OF_INTS = [agg.sum("n", of=int), agg.mean(number_of, of=int)]
FLOATS = [agg.sum("n"), agg.mean("n"), agg.variance("n")]

INTS = st.integers(-2, 2) | st.booleans()
NUMBERS = INTS | st.sampled_from([0.0, -0.0, 1.0, 0.1, 0.2, 0.3, 1e16, -1e16])


class Wavering(Worth):
    """Decides by a script, whatever it is worth."""

    def __init__(self, script: Sequence[bool]) -> None:
        super().__init__()
        self._script = [*script]

    def note(self, records: int, accumulators: int) -> None:
        if self._script:
            self.is_given = self._script.pop()

    def end_tick(self) -> None:
        self.is_given = True


def changed(program: Program, local: Callable[[Channel], Any]) -> Program:
    """Return a program with another aggregation before each exchange."""
    new = {channel.number: replace(channel, local=local(channel)) for channel in program.channels}

    def renewed(channels: Iterable[Channel]) -> tuple[Channel, ...]:
        return tuple(new[it.number] for it in channels)

    stages = [replace(it, inputs=renewed(it.inputs), outputs=renewed(it.outputs)) for it in program.stages]
    return Program(program.vertices, tuple(stages), renewed(program.channels))


def without(program: Program) -> Program:
    return changed(program, lambda channel: None)


def _of_worth(local: Any, script: Sequence[bool]) -> LocalAggregate:
    made: LocalAggregate = local(worth=Wavering(script))
    return made


def wavering(program: Program, script: Sequence[bool]) -> Program:
    def local(channel: Channel) -> Any:
        return None if channel.local is None else partial(_of_worth, channel.local, script)

    return changed(program, local)


def states_of(run: DrivenRun) -> Any:
    """Return all states, in the order of their keys, without the example of a timestamp."""
    found = pickle.loads(pickle.dumps(run.states()))
    return {name: [it for it in state.items() if it[0] != "like"] for name, state in found.items()}


def seen(program: Program, sink: VecSink[Any, Any, Any], limits: Sequence[int], parallelism: int) -> Any:
    """Return all that can be seen of a run: results in their order, counts, and states after each tick."""
    states = []
    run = DrivenRun(program, parallelism=parallelism)
    run.open()
    with run:
        number = 0
        while not run.is_finished:
            tick = replace(run.ticks.begin(), limit=limits[number % len(limits)])
            run.ticks.end(tick, run.run(tick))
            states.append(states_of(run))
            number += 1
        run.end()
    return [(it.key, repr(it.value), it.timestamp) for it in sink], dict(run.ticks.counts), states


def built(
    script: Mapping[str, Sequence[Any]], windows: Windows, aggregators: Sequence[Any], bound: int, every: int | None
) -> tuple[Program, VecSink[Any, Any, Any]]:
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("parts", ScriptedSource(script))
        timed = stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=bound, every=every)
        keyed = timed.key_distribute("key", lambda msg: msg.value["key"])
        keyed.window(windows).aggregate("windows", *aggregators).sink("sink", sink)

    return compiled(build), sink


def records(numbers: Any) -> Any:
    """Return scripts of three parts whose times advance slowly, out of order."""
    record = st.builds(
        lambda at, key, n: (at, key, n), st.sampled_from([0, 0, 0, 1, 4]), st.sampled_from(["x", "y", 1, 1.0]), numbers
    )
    items = st.integers(0, 20).flatmap(lambda it: record if it else st.none())
    part = st.lists(items, max_size=4).flatmap(lambda few: st.lists(items, min_size=40, max_size=60).map(few.__add__))
    return st.fixed_dictionaries({name: part.map(_script) for name in PARTS})


def _script(items: Sequence[Any]) -> list[Any]:
    return [
        PAUSE if item is None else Timed({"key": item[1], "n": item[2], "at": at}, at // 12 + item[0])
        for at, item in enumerate(items)
    ]


WINDOWS = st.sampled_from([tumbling(3), tumbling(7), sliding(6, 2), sliding(2, 5)])


@pytest.mark.slow
@settings(max_examples=max(25, settings().max_examples // 2), phases=[Phase.generate])
@given(data=st.data(), windows=WINDOWS, bound=st.sampled_from([2, 6]), every=st.sampled_from([None, 2, 6]))
def test_nothing_shows_whether_records_were_aggregated_before(
    data: st.DataObject, windows: Windows, bound: int, every: int | None
) -> None:
    of_ints = data.draw(st.booleans())
    kinds = [*IN_ANY_ORDER, *(OF_INTS if of_ints else []), *(IN_ORDER if data.draw(st.booleans()) else [])]
    aggregators = data.draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))
    script = data.draw(records(INTS if of_ints else NUMBERS))
    limits = data.draw(st.lists(st.sampled_from([1, 30, 80, 80]), min_size=1, max_size=3))
    parallelism = data.draw(st.integers(2, 3))
    found = []
    for change in (without, lambda it: it, partial(wavering, script=data.draw(st.lists(st.booleans(), max_size=9)))):
        program, sink = built(script, windows, aggregators, bound, every)
        assert all(it.local is not None for it in program.channels)
        found.append(seen(change(program), sink, limits, parallelism))
    off, on, mixed = found
    assert on == off
    assert mixed == off


def same_with_and_without(script: Mapping[str, Sequence[Any]], aggregators: Sequence[Any], bound: int) -> int:
    """Compare all that can be seen, and return how many records fewer are sent."""
    found, sent = [], []
    for change in (without, lambda it: it):
        program, sink = built(script, tumbling(100), aggregators, bound, 20)
        found.append(seen(change(program), sink, [80], 2))
        sent.append(sum(rows_sent(change(built(script, tumbling(100), aggregators, bound, 20)[0]), limit=80)))
    assert found[0] == found[1]
    return sent[0] - sent[1]


def test_records_of_senders_keep_their_order_across_epochs() -> None:
    script = {part: [Timed({"key": "x", "n": (part, at)}, at) for at in range(400)] for part in PARTS}
    assert same_with_and_without(script, [Joined()], 1) > 800


def test_accumulators_end_where_records_are_sent_as_they_are() -> None:
    def batch(*numbers: Any) -> Batch:
        return Batch(["x"] * len(numbers), [{"n": it} for it in numbers], [5] * len(numbers))

    local = LocalAggregate("windows", tumbling(100), [Joined(), agg.max("n")])
    assert local.take(Batch(None, (), (), [(0, 1)])) == ()
    for part in (batch(1, 2), batch(3), batch(float("nan"), 4), batch(5, 6)):
        assert local.take(part) == ()
    sent = [it for part in local.end_tick() for it in part.values]
    assert sent == [Accumulated(([["1", "2", "3"], 3],)), sent[1], {"n": 4}, Accumulated(([["5", "6"], 6],))]
    assert local.end_tick() == []


@pytest.mark.parametrize("aggregator", FLOATS, ids=repr)
def test_sums_of_floats_are_never_aggregated_before(aggregator: Any) -> None:
    program, _ = built({"a": []}, tumbling(3), [agg.count(), aggregator], 1, None)
    assert [it.local for it in program.channels] == [None]


Read = Callable[[Any, Any], Any]

EXCLUDED: dict[str, Read] = {
    "early results": lambda _, keyed: keyed.window(tumbling(4), early=2).aggregate("it", agg.count()),
    "sessions": lambda _, keyed: keyed.window(session(4)).aggregate("it", agg.count()),
    "count windows": lambda _, keyed: keyed.window(counting(4)).aggregate("it", agg.count()),
    "running aggregates": lambda _, keyed: keyed.aggregate("it", agg.count()),
    "late records": lambda _, keyed: keyed.window(tumbling(4)).allow_late().aggregate("it", agg.count()).results,
    "another reader": lambda _, keyed: keyed.union(
        keyed.window(tumbling(4)).aggregate("it", agg.count()).map("value", lambda it: it.value)
    ),
    "an operator between": lambda _, keyed: (
        keyed.map("same", lambda value: value).window(tumbling(4)).aggregate("it", agg.count())
    ),
    "epochs downstream": lambda _, keyed: (
        keyed.window(tumbling(4))
        .aggregate("it", agg.count())
        .event_time("again", lambda msg: msg.timestamp, out_of_orderness=1, per_part=False)
    ),
    "a partitioner of one's own": lambda timed, _: (
        timed.key_distribute("own", lambda msg: msg.value, lambda key, workers: workers[0])
        .window(tumbling(4))
        .aggregate("it", agg.count())
    ),
}


def timed_stream(provider: StreamProvider, values: Iterable[Any]) -> Any:
    stream = provider.new_stream().source("values", SingleIteratorSource(values))
    return stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=2)


@pytest.mark.parametrize("read", EXCLUDED.values(), ids=EXCLUDED)
def test_whoever_sees_single_records_gets_them(read: Read) -> None:
    def build(provider: StreamProvider) -> None:
        timed = timed_stream(provider, [])
        read(timed, timed.key_distribute("key", lambda msg: msg.value)).sink("sink", VecSink())

    assert {it.local for it in compiled(build).channels} == {None}


def rows_sent(program: Program, parallelism: int = 2, *, debug: bool = False, limit: int = 1_000) -> list[int]:
    """Return how many rows pass the exchange in each tick."""
    sent: list[int] = []

    def note(stage: Stage, outputs: Any) -> None:
        batches = [it for channel in stage.outputs for by in outputs[channel.number] for to in by for it in to]
        sent.append(sum(map(len, batches)))

    run = DrivenRun(program, parallelism=parallelism, debug=debug)
    run.open()
    with run:
        while not run.is_finished:
            tick = replace(run.ticks.begin(), limit=limit)
            run.ticks.end(tick, run.run(tick, exchange=note))
    return sent


def sums(values: Iterable[Any], sink: Any = None, *, aggregators: Sequence[Any] = (agg.count(),)) -> Program:
    def build(provider: StreamProvider) -> None:
        keyed = timed_stream(provider, values).key_distribute("key", lambda msg: msg.value % 3)
        keyed.window(tumbling(500)).aggregate("sums", *aggregators).sink("sink", sink or VecSink())

    return compiled(build)


@pytest.mark.slow
def test_a_tick_sends_one_accumulator_for_each_key_and_window() -> None:
    assert rows_sent(sums(range(4_000)))[1:5] == [6, 6, 6, 0]
    assert rows_sent(sums(range(4_000)), debug=True)[1:5] == [1_000, 1_000, 1_000, 0]
    assert rows_sent(sums(range(4_000)), parallelism=1)[1:5] == [1_000, 1_000, 1_000, 0]


@pytest.mark.slow
def test_records_are_sent_where_it_does_not_pay_until_the_next_try() -> None:
    def build(provider: StreamProvider) -> None:
        keyed = timed_stream(provider, range(100_000)).key_distribute("key", lambda msg: msg.value // 2)
        keyed.window(tumbling(100_000)).aggregate("sums", agg.count()).sink("sink", VecSink())

    sent = rows_sent(compiled(build))[:-1]
    tried = [tick for tick, rows in enumerate(sent) if rows == 500]
    assert tried[0] == 1, "the first tick has no epoch before it"
    assert set(sent) == {500, 1_000}
    gaps = [after - before for before, after in pairwise(tried) if after - before > 1]
    assert gaps[:2] == [16, 32]


def test_it_is_worth_while_with_enough_records_an_accumulator() -> None:
    worth = Worth()
    worth.note(8_191, 8_191)
    assert worth.is_given, "it is not known yet"
    worth.note(1, 0)
    assert not worth.is_given, "there are too many keys"
    for accumulators, pays in ((1_000, True), (1_001, False)):
        worth = Worth()
        worth.note(12_000, accumulators)
        assert worth.is_given
        worth.end_tick()
        assert worth.is_given == pays


@pytest.mark.parametrize("kind", [agg.sum, agg.mean])
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("debug", [True, False])
def test_a_float_among_promised_ints_is_an_error(kind: Any, parallelism: int, debug: bool) -> None:
    values = [*range(100), 0.5, *range(100, 200)]

    def build(provider: StreamProvider) -> None:
        keyed = timed_stream(provider, values).key_distribute("key", lambda msg: "all")
        keyed.window(tumbling(50)).aggregate("sums", kind(of=int)).sink("sink", VecSink())

    with pytest.raises(OperatorError, match=r"'sums'.*0\.5, of type float, where of=int promises integers") as caught:
        SingleThreadRuntime(build, parallelism=parallelism, debug=debug).execute()
    assert (caught.value.operator, caught.value.key, caught.value.value) == ("sums", "all", 0.5)


def picky(value: int) -> int:
    if value == 150:
        raise KeyError("picked")
    return value


class PickyAggregator(Joined):
    """Fails for a value."""

    def add(self, acc: list[str], value: Any, timestamp: Any) -> list[str]:
        return [*acc, str(picky(value))]


@pytest.mark.parametrize("aggregator", [agg.max(picky), agg.sum(picky, of=int), PickyAggregator()], ids=repr)
def test_errors_are_those_of_the_record(aggregator: Any) -> None:
    found = []
    for program in (sums(range(300), aggregators=[aggregator]), without(sums(range(300), aggregators=[aggregator]))):
        with pytest.raises(OperatorError) as caught:
            rows_sent(program)
        found.append((caught.value.operator, caught.value.key, caught.value.value, str(caught.value)))
    assert found[0] == found[1]
    assert found[0][:3] == ("sums", 0, 150)


def test_a_record_that_became_late_on_its_way_is_refused() -> None:
    def build(provider: StreamProvider) -> None:
        timed = timed_stream(provider, range(4_000))
        moved = timed.stateless_op(
            "older", lambda msg, output: output.send(DataMessage(msg.key, msg.value, msg.value and 3_000 - msg.value))
        )
        keyed = moved.key_distribute("key", lambda msg: "all")
        keyed.window(tumbling(50)).aggregate("sums", agg.count()).sink("sink", VecSink())

    program = compiled(build)
    found = []
    for it in (program, without(program)):
        with pytest.raises(OperatorError, match="the record is late") as caught:
            rows_sent(it)
        found.append(str(caught.value))
    assert found[0] == found[1]
