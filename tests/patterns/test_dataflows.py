"""Random patterns in dataflows: matches and timeouts agree with the reference, whatever happens to the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import DataMessage
from malflow.patterns.explaining import find
from malflow.patterns.positions import Masks
from malflow.sinks import VecSink
from malflow.testing import PAUSE, Timed, assert_exactly_once
from tests.kit.driving import Store, compiled, finish
from tests.kit.nights import at_night
from tests.patterns.examples import EXAMPLES, Example
from tests.patterns.reference import Meaning
from tests.patterns.specs import Spec, built
from tests.patterns.strategies import afters, histories, meaning_of, often, specs, values
from tests.windows.model import parted
from tests.windows.running import Item, Watch, results_of, source_of, windowed_flow

pytestmark = pytest.mark.slow

Row = tuple[Any, str, Any, tuple[Any, ...]]
"""A key, what was found, when, and the events: step, value and timestamp."""

rows = st.tuples(st.sampled_from("xy"), st.integers(0, 12), values)


def spread(items: list[Any]) -> list[Item]:
    """Return items whose times advance, out of order."""
    return [it if it is PAUSE else (it[0], it[1] + at, it[2]) for at, it in enumerate(items)]


streams: st.SearchStrategy[list[Item]] = st.lists(st.one_of(rows, rows, rows, st.just(PAUSE)), max_size=14).map(spread)
workers = st.integers(1, 3)


def matched(spec: Spec, after: str, **options: Any) -> Callable[[Any], Any]:
    """Return a function that adds a pattern to a keyed stream, with its matches and timeouts in one stream."""

    def add(keyed: Any) -> Any:
        found = keyed.match("match", built(spec), after=after, **options)
        matches = found.matches.map("matches", lambda match: ("match", match.events))
        return matches.union(found.timeouts.map("timeouts", lambda match: ("timeout", match.events)))

    return add


def rows_of(messages: Iterable[Any]) -> list[Row]:
    """Return messages as rows, those of one key and kind together, in their order."""
    found = [(it.key, it.value[0], it.timestamp, tuple(map(tuple, it.value[1]))) for it in messages]
    return sorted(found, key=lambda row: (row[0], row[1]))


def expected_rows(spec: Spec, after: str, items: Iterable[Item], bound: int) -> list[Row]:
    """Return the reference's matches and timeouts in the records that are on time."""
    on_time, _, _ = parted([it for it in items if it is not PAUSE], bound)
    found: list[Row] = []
    for key in "xy":
        history = sorted(((at, value) for k, at, value in on_time if k == key), key=lambda it: it[0])
        meaning = meaning_of(spec, history)

        def row(told: Any, kind: str, key: str = key, meaning: Meaning = meaning) -> Row:
            choice, at = told
            return key, kind, at, tuple((name, meaning.events[it][1], meaning.events[it][0]) for it, name in choice)

        found += [row(told, "match") for told in meaning.matches(after)]
        found += [row(told, "timeout") for told in meaning.timeouts(after)]
    return found


@often
@given(spec=specs(), after=afters, items=streams, bound=st.integers(0, 12), parallelism=workers, debug=st.booleans())
def test_results_are_those_of_the_reference(
    spec: Spec, after: str, items: list[Item], bound: int, parallelism: int, debug: bool
) -> None:
    found = results_of(items, bound, matched(spec, after), parallelism=parallelism, debug=debug)
    assert rows_of(found) == expected_rows(spec, after, items, bound)


@often
@given(spec=specs(), after=afters, items=streams, bound=st.integers(0, 12), data=st.data())
def test_restarts_and_rescales_change_nothing(
    spec: Spec, after: str, items: list[Item], bound: int, data: st.DataObject
) -> None:
    expected = expected_rows(spec, after, items, bound)
    ticks = [part for item in items for part in (item, PAUSE)]  # one for each record
    sink: VecSink[Any, Any, Any] = VecSink()
    program, store = compiled(windowed_flow(source_of(ticks), bound, matched(spec, after), sink)), Store()
    run = store.restore(program, data.draw(workers))
    while not run.is_finished:
        run.tick()
        store.commit(run, program)
        change = data.draw(st.sampled_from(["none", "none", "restart", "rescale"]))
        if change == "restart":
            run.close()
            run = store.restore(program, data.draw(workers))
        elif change == "rescale":
            run.rescale(data.draw(workers))
    finish(run)
    assert rows_of(sink) == expected


@often
@given(spec=specs(), after=afters, items=streams, bound=st.integers(0, 12))
def test_results_are_neither_behind_an_epoch_nor_ahead_of_it(
    spec: Spec, after: str, items: list[Item], bound: int
) -> None:
    for output in (0, 1):
        watch = Watch()

        def add(keyed: Any, output: int = output, watch: Watch = watch) -> Any:
            return keyed.match("it", built(spec), after=after)[output].stateless_op("see", watch)

        results_of(items, bound, add)
        watch.assert_forward()


@often
@given(spec=specs(), after=afters, items=streams, kept=st.lists(st.booleans(), min_size=14, max_size=14))
def test_fewer_epochs_give_the_same_matches(spec: Spec, after: str, items: list[Item], kept: list[bool]) -> None:
    bound = 12
    numbered = [it for it in items if it is not PAUSE]
    chosen = iter([*kept, *kept])

    def thinned(msg: Any, _epoch: Any) -> Any:
        return msg.timestamp - bound if next(chosen) else None

    few = results_of(numbered, bound, matched(spec, after), generator=thinned)
    every = results_of(numbered, bound, matched(spec, after))
    on_time, _, _ = parted(numbered, bound)
    if len(on_time) == len(numbered):
        assert rows_of(few) == rows_of(every)


@often
@given(spec=specs(bounded=True), after=afters, items=streams)
def test_nothing_remains_when_the_time_is_over(spec: Spec, after: str, items: list[Item]) -> None:
    horizon = ("z", 1000, ("", 0))
    program = compiled(windowed_flow(source_of([*items, horizon, PAUSE]), 12, matched(spec, after), VecSink()))
    store = Store()
    run = store.restore(program, 1)
    while not run.is_finished:
        run.tick()
        store.commit(run, program)
    run.close()
    assert set(store.merged("match")) <= {"z"}


@often
@given(spec=specs(), after=afters, events=histories())
def test_each_start_ends_in_one_way(spec: Spec, after: Any, events: Any) -> None:
    pattern = built(spec)
    machine = pattern.machine(after, 1000)
    counters = machine.counters
    find(machine, Masks(pattern.all_steps), [DataMessage("key", value, at) for at, value in events])
    fates = [fate.name for fate in meaning_of(spec, events).fates(after).values()]
    assert counters.starts == len(fates)
    assert counters.timeouts == fates.count("timeout")
    assert counters.matches >= fates.count("match")
    open_starts = {run[1][4] for runs in machine.runs.values() for run in runs} - set().union(
        *machine.finished.values()
    )
    if after != "all":
        assert counters.matches == fates.count("match")
        ended = counters.matches + counters.used_up + counters.timeouts + counters.broken
        assert counters.starts == ended + len(open_starts)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
@pytest.mark.parametrize("bound", [0, 3])
def test_examples_survive_a_restart_after_each_record(example: Example, bound: int) -> None:
    items: list[Item] = [("x", at, value) for at, value in example.events]
    ticks = [part for item in items for part in (item, PAUSE)]
    sink: VecSink[Any, Any, Any] = VecSink()
    program = compiled(windowed_flow(source_of(ticks), bound, matched(example.spec, example.after), sink))
    store = Store()
    run = store.restore(program, 1)
    while not run.is_finished:
        run.tick()
        store.commit(run, program)
        run.close()
        run = store.restore(program, 1)
    finish(run)
    assert rows_of(sink) == expected_rows(example.spec, example.after, items, bound)


_EVERY_FOURTH = [*product(range(0, len(EXAMPLES), 4), ["end", "start", "all"])]


@pytest.mark.parametrize(("number", "after"), at_night(_EVERY_FOURTH, but=_EVERY_FOURTH[::4]))
def test_examples_are_exactly_once(number: int, after: str) -> None:
    example: Example = EXAMPLES[number]
    items = [Timed((key, value), at) for at, value in example.events for key in "xy"]
    build = windowed_flow(source_of([]), 3, matched(example.spec, after), VecSink())
    assert_exactly_once(build, {"source": items}, max_examples=6)
