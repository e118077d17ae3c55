"""Patterns in a dataflow: the times of their results, late records, and mistakes that are rejected."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import DataMessage, GraphError, OperatorError, SingleThreadRuntime, StreamProvider, limit_out_of_orderness
from malflow.graph import Graph
from malflow.patterns import Pattern, absent, step
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource, StatefulSource
from malflow.testing import PAUSE, ScriptedSource, Timed
from tests.kit.driving import Store, compiled, finish, run_of
from tests.patterns.running import Outputs, events_of, match_flow, outputs_of
from tests.windows.running import Watch, source_of

a, b, c = (step(name, lambda value, name=name: name in value) for name in "abc")  # type: ignore[misc]

PATTERNS: list[Pattern[Any]] = [
    a.then(b),
    a.times(2).then(b, without=c).within(6),
    a.then(b).then_not(c, during=3),
    a.next(b),
    a.then_not(b).within(4),
    a.at_least(1).then_not(a, during=2),
    absent(c, during=3).then(a),
    (a.then(b, within=2) | b.then_any(c)).within(3),
    a.then(b & c).within(9),
]

patterns = st.sampled_from(PATTERNS)
afters = st.sampled_from(["end", "start", "all"])
records = st.tuples(st.sampled_from("xy"), st.integers(0, 2), st.sampled_from(["a", "b", "c", "ab", "bc", ""]))


def in_time(items: list[Any]) -> list[Any]:
    """Return items whose timestamps, instead of distances, go on; they are distinct for all keys."""
    made: list[Any] = []
    time = 0
    for item in items:
        if item is PAUSE:
            made.append(item)
        else:
            time += item[1]
            made.append((item[0], time, item[2]))
    return made


histories = st.lists(st.one_of(records, st.just(PAUSE)), max_size=25).map(in_time)


def found_by_key(items: list[Any], pattern: Pattern[Any], after: Any) -> tuple[list[Any], list[Any]]:
    """Return the events of matches and timeouts of each key alone."""
    matches, timeouts = [], []
    for key in "xy":
        own = [DataMessage(key, it[2], it[1]) for it in items if it is not PAUSE and it[0] == key]
        found = pattern.find(own, after=after)
        matches += [(key, match.events) for match in found]
        timeouts += [(key, match.events) for match in found.timeouts]
    return matches, timeouts


def by_key(messages: VecSink[Any, Any, Any]) -> list[Any]:
    """Return key and events of each match, the keys one after the other."""
    return [(key, msg.value.events) for key in "xy" for msg in messages if msg.key == key]


@given(pattern=patterns, after=afters, items=histories, bound=st.integers(1, 4))
@pytest.mark.slow
def test_ticks_epochs_and_other_keys_do_not_change_matches(
    pattern: Pattern[Any], after: Any, items: list[Any], bound: int
) -> None:
    outputs = outputs_of(items, bound, pattern, after=after)
    assert (by_key(outputs.matches), by_key(outputs.timeouts)) == found_by_key(items, pattern, after)
    assert not list(outputs.late)


@given(pattern=patterns, after=afters, items=histories, seed=st.randoms(use_true_random=False))
@pytest.mark.slow
def test_the_order_of_arrival_does_not_change_matches(
    pattern: Pattern[Any], after: Any, items: list[Any], seed: Any
) -> None:
    numbered = [it for it in items if it is not PAUSE]
    numbered = [(it[0], at, it[2]) for at, it in enumerate(numbered)]
    shuffled = seed.sample(numbered, len(numbered))
    outputs = outputs_of(shuffled, 100, pattern, after=after)
    assert (by_key(outputs.matches), by_key(outputs.timeouts)) == found_by_key(numbered, pattern, after)


@given(pattern=patterns, after=afters, items=histories, data=st.data())
@pytest.mark.slow
def test_restarts_and_rescales_do_not_change_matches(
    pattern: Pattern[Any], after: Any, items: list[Any], data: st.DataObject
) -> None:
    outputs = Outputs(VecSink(), VecSink(), VecSink())
    program = compiled(match_flow(source_of(items), 2, pattern, outputs, after=after))
    store = Store()
    run = store.restore(program, 1)
    while not run.is_finished:
        run.tick()
        change = data.draw(st.sampled_from(["none", "rescale", "commit", "restart"]))
        workers = data.draw(st.integers(1, 3))
        if change == "rescale":
            run.rescale(workers)
        elif change != "none":
            store.commit(run, program)
        if change == "restart":
            run.close()
            run = store.restore(program, workers)
    finish(run)
    assert (by_key(outputs.matches), by_key(outputs.timeouts)) == found_by_key(items, pattern, after)


@given(pattern=patterns, after=afters, items=histories, bound=st.integers(1, 4))
@pytest.mark.slow
def test_results_are_not_behind_epochs_nor_ahead_of_the_next(
    pattern: Pattern[Any], after: Any, items: list[Any], bound: int
) -> None:
    watches = [Watch(), Watch()]

    def build(provider: Any) -> None:
        on_time, _ = (
            provider.new_stream()
            .source("source", source_of(items))
            .generate_epochs("epochs", limit_out_of_orderness(bound))
        )
        keyed = on_time.key_distribute("key", lambda msg: msg.value[0]).map("value", lambda value: value[1])
        found = keyed.match("match", pattern, after=after)
        found.matches.stateless_op("matches", watches[0]).sink("matches sink", VecSink())
        found.timeouts.stateless_op("timeouts", watches[1]).sink("timeouts sink", VecSink())

    SingleThreadRuntime(build).execute()
    for watch in watches:
        watch.assert_forward()


@given(pattern=patterns, items=histories)
@pytest.mark.slow
def test_checks_do_not_change_matches(pattern: Pattern[Any], items: list[Any]) -> None:
    plain, checked = outputs_of(items, 2, pattern), outputs_of(items, 2, pattern, runtime={"debug": True})
    assert [events_of(sink) for sink in checked] == [events_of(sink) for sink in plain]


@given(pattern=st.sampled_from([it for it in PATTERNS if it.span is not None]), after=afters, items=histories)
@pytest.mark.slow
def test_nothing_remains_of_a_key_whose_time_is_over(pattern: Pattern[Any], after: Any, items: list[Any]) -> None:
    late_key = ("z", 1000, "a")
    outputs = Outputs(VecSink(), VecSink(), VecSink())
    run = run_of(match_flow(source_of([*items, PAUSE, late_key]), 2, pattern, outputs, after=after))
    with run:
        while not run.is_finished:
            run.tick()
        (state,) = [state for (_, name), state in run.states().items() if name == "match"]
    assert set(state) <= {"z"}


def test_absences_and_timeouts_come_by_the_epoch_alone() -> None:
    items = [("x", 0, "a"), ("x", 1, "a"), PAUSE, ("y", 5, ""), PAUSE, ("y", 6, ""), PAUSE]
    waiting = outputs_of(items, 0, a.then_not(b, during=5), after="start")
    assert [(msg.timestamp, msg.value.end) for msg in waiting.matches] == [(5, 5), (6, 6)]
    late = outputs_of(items, 0, a.then(b).within(5))
    assert [(msg.timestamp, msg.value.start) for msg in late.timeouts] == [(5, 0), (6, 1)]


def test_records_with_one_timestamp_are_in_the_order_of_ties() -> None:
    items = [("x", 1, "b2"), ("x", 1, "a1")]
    assert not list(outputs_of(items, 1, a.then(b)).matches)
    assert len(list(outputs_of(items, 1, a.then(b), ties=lambda value: value[1]).matches)) == 1


def test_by_arrival_records_do_not_wait() -> None:
    items = [("x", 5, "a"), ("x", 3, "b"), ("x", 4, "a"), ("x", 20, "b")]
    by_arrival = outputs_of(items, 9, a.then(b).within(5), order="arrival")
    assert [[event.timestamp for event in msg.value.events] for msg in by_arrival.matches] == [[5, 3]]
    assert [msg.timestamp for msg in by_arrival.timeouts] == [9]


def test_by_arrival_an_older_event_does_not_end_the_absence_before_it() -> None:
    items = [("x", 10, "c"), ("x", 2, "c"), ("x", 12, "a"), ("x", 16, "a")]
    by_arrival = outputs_of(items, 20, absent(c, during=5).then(a), order="arrival")
    assert [msg.value.start for msg in by_arrival.matches] == [16]


def test_records_behind_the_epoch_are_late() -> None:
    def build(provider: Any) -> None:
        on_time, late = (
            provider.new_stream()
            .source(
                "source", source_of([("x", 1, "a"), ("x", 9, ""), PAUSE, ("x", 2, "b"), ("x", 9, "b"), ("x", 10, "b")])
            )
            .generate_epochs("epochs", limit_out_of_orderness(0))
        )
        both = on_time.key_distribute("key", lambda msg: "x").union(late.key_distribute("late key", lambda msg: "x"))
        found = both.map("value", lambda value: value[1]).match("match", a.then(b))
        for stream, name, sink in zip(found, Outputs._fields, outputs, strict=True):
            stream.sink(f"{name} sink", sink)

    outputs = Outputs(VecSink(), VecSink(), VecSink())
    SingleThreadRuntime(build).execute()
    assert [(msg.value, msg.timestamp) for msg in outputs.late] == [("b", 2), ("b", 9)]
    assert [msg.timestamp for msg in outputs.matches] == [10]


def test_an_error_of_a_predicate_names_the_record_and_the_line() -> None:
    pattern = a.then(step("number", lambda value: int(value) > 0))
    with pytest.raises(
        OperatorError, match=r"operator 'match' failed at key 'x', value '7b', timestamp 2: ValueError.*"
    ):
        outputs_of([("x", 1, "6"), ("x", 2, "7b")], 0, pattern)
    with pytest.raises(OperatorError, match=r"in .*<lambda> \(.*test_operator.py:\d+\)") as caught:
        outputs_of([("x", 1, "6"), ("x", 2, "7b")], 0, pattern)
    assert (caught.value.key, caught.value.value) == ("x", "7b")


def test_an_error_of_a_condition_on_the_match_names_the_record() -> None:
    pattern = a.then(step("more", given=lambda value, so_far: value > so_far.last("typo")))
    with pytest.raises(OperatorError, match=r"failed at key 'x', value 'q', timestamp 2: KeyError.*no step 'typo'"):
        outputs_of([("x", 1, "a"), ("x", 2, "q")], 0, pattern)


def test_durations_that_do_not_fit_the_timestamps_name_the_record() -> None:
    with pytest.raises(OperatorError, match=r"failed at key 'x', value 'a', timestamp 1: TypeError.*timedelta"):
        outputs_of([("x", 1, "a")], 0, a.then(b).within(timedelta(hours=1)))


def test_too_many_partial_matches_are_an_error_with_a_remedy() -> None:
    items = [("x", at, "a") for at in range(5)]
    with pytest.raises(OperatorError, match=r"it has 4 partial matches for key 'x', the limit is 3; .*began at 0"):
        outputs_of(items, 0, a.then(b).within(100), limit=3)
    outputs = outputs_of([*items, ("x", 5, "b")], 0, a.then(b).within(100), limit=3, overflow="oldest", after="start")
    assert [msg.value.start for msg in outputs.matches] == [2, 3, 4]


def test_predicates_that_are_no_functions_are_found_by_checks() -> None:
    calls: list[int] = []

    def is_odd(value: Any) -> bool:
        calls.append(1)
        return len(calls) % 2 == 1

    odd = step("odd", is_odd)
    changing = a.then(step("odd", given=lambda value, so_far: is_odd(value)))
    with pytest.raises(OperatorError, match=r"key 'x', value 'b'.*given= of step 'odd' returned True, and another"):
        outputs_of([("x", 1, "a"), ("x", 2, "b")], 0, changing, runtime={"debug": True})
    calls.clear()
    with pytest.raises(OperatorError, match="predicates returned another result when called again"):
        outputs_of([("x", 1, "a")], 0, odd, runtime={"debug": True})


@pytest.mark.parametrize(
    ("pattern", "warns"),
    [
        (a.then(b.at_least(2)), True),
        (a | b.at_least(2), True),
        (a.then(b).at_least(1), True),
        (a.at_least(2).then(b), False),
        (a.at_least(2).then_not(a, during=3), False),
        (a.times(2, 3), False),
    ],
)
def test_a_loop_without_limit_at_the_end_is_found_by_checks(
    pattern: Pattern[Any], warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "malflow.patterns"):
        outputs_of([("x", 1, "a")], 0, pattern)
        assert not caplog.text
        outputs_of([("x", 1, "a")], 0, pattern, runtime={"debug": True})
    assert ("ends with an unlimited loop" in caplog.text) == warns


def no_epochs(provider: Any) -> Any:
    return provider.new_stream().source("source", SingleIteratorSource(range(3))).key_distribute("key", lambda msg: 1)


def with_epochs(provider: Any) -> Any:
    return no_epochs(provider).generate_epochs("epochs", limit_out_of_orderness(0))[0]


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda keyed: keyed.match("it", 3), r"operator 'it' needs a pattern, such as step\(...\)"),
        (lambda keyed: keyed.match("it", a.optional()), "operator 'it' can't find it: a[?] needs no event"),
        (lambda keyed: keyed.match("it", a, after="next"), "after must be 'end', 'start' or 'all'"),
        (lambda keyed: keyed.match("it", a, limit=0), "operator 'it' limit must be a whole number, at least 1; got 0"),
        (lambda keyed: keyed.match("it", a, overflow="drop"), "overflow must be 'fail' or 'oldest'; got 'drop'"),
        (lambda keyed: keyed.match("it", a, order="any"), "order must be 'time' or 'arrival'; got 'any'"),
        (lambda keyed: keyed.match("it", a, ties=3), "ties must be a plain function"),
        (lambda keyed: keyed.match("it", a, ties=len, order="arrival"), "drop one"),
        (lambda keyed: keyed.match("it", step("a", "A")), "step 'a' of a has the kind 'A'.*pass kind="),
        (lambda keyed: keyed.match("it", a, version=0), "version must be a whole number, at least 1"),
        (lambda keyed: keyed.match("it", a, migrate=3), "migrate must be a plain function"),
    ],
)
def test_wrong_arguments_are_refused(add: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        compiled(lambda provider: add(with_epochs(provider)))
    assert caught.value.location is not None
    assert __file__ in caught.value.location


def test_a_stream_without_epochs_or_keys_is_refused() -> None:
    with pytest.raises(
        GraphError, match=r"operator 'it' has no epochs .* call .event_time\(\) or .generate_epochs\(\) before, or pass"
    ):
        compiled(lambda provider: no_epochs(provider).match("it", a))
    stream: Any = StreamProvider(Graph()).new_stream().source("source", SingleIteratorSource([]))
    with pytest.raises(GraphError, match=r"needs a keyed stream; .* before .match\(\)"):
        stream.match("it", a)


def test_by_arrival_a_stream_needs_no_epochs() -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    odd = step("odd", lambda value: value % 2)
    SingleThreadRuntime(
        lambda provider: no_epochs(provider).match("it", odd, order="arrival").matches.sink("sink", sink)
    ).execute()
    assert [msg.timestamp for msg in sink] == [1]


def test_three_streams_are_matched_as_one() -> None:
    source = StatefulSource(ScriptedSource([Timed("a", 1), Timed("c", 2), Timed("b", 3)]))
    sink: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        on_time, _ = provider.new_stream().source("source", source).generate_epochs("epochs", limit_out_of_orderness(0))
        one, *others = (
            on_time.filter(name, lambda value, name=name: value == name).key_distribute(f"key {name}", lambda msg: 1)
            for name in "abc"
        )
        one.union(*others).match("match", a.then(c).then(b)).matches.sink("sink", sink)

    SingleThreadRuntime(build).execute()
    assert [[event.value for event in msg.value.events] for msg in sink] == [["a", "c", "b"]]


@pytest.mark.parametrize(
    ("add", "is_on_time"),
    [
        (lambda on_time, late: on_time, True),
        (lambda on_time, late: on_time.map("same", str).filter("all", bool).cloned("two", 2)[1], True),
        (lambda on_time, late: late, False),
        (lambda on_time, late: on_time.union(late), False),
        (lambda on_time, late: on_time.stateless_op("any time", lambda msg, output: output.send(msg)), False),
        (lambda on_time, late: on_time.sort("sorted"), False),
    ],
)
def test_streams_that_may_have_late_records_are_known(add: Callable[[Any, Any], Any], is_on_time: bool) -> None:
    graph = Graph()
    source = StreamProvider(graph).new_stream().source("source", SingleIteratorSource(range(3)))
    keyed: Any = source.key_distribute("key", lambda msg: msg.value)
    stream = add(*keyed.generate_epochs("epochs", limit_out_of_orderness(0)))
    assert graph.is_on_time(stream._port) == is_on_time
