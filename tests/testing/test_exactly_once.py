"""The check accepts correct dataflows, and finds wrong ones, with a readable schedule."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import pytest

from malflow import (
    DataMessage,
    ExpireMap,
    GraphError,
    MissingDependency,
    OperatorError,
    StatefulLogic,
    StreamProvider,
    limit_out_of_orderness,
)
from malflow.operators.contract import Output
from malflow.sinks import StatefulSink, StatelessSink, VecSink
from malflow.sources import SingleIteratorSource, StatefulSource, StatelessSource
from malflow.testing import CRASH, PAUSE, Timed, assert_exactly_once

pytestmark = pytest.mark.slow

Build = Callable[[StreamProvider], object]


class Unused:
    """A source or sink that fails if it is ever used."""

    def __init__(self, *, keyed: bool = False) -> None:
        self.keyed = keyed

    def __getattr__(self, name: str) -> Any:
        if name not in ("list_parts", "build_part", "sink"):
            raise AttributeError(name)

        def fail(*_: Any) -> Any:
            raise AssertionError(f"{name} was called")

        return fail


def source(*, keyed: bool = False) -> Any:
    return StatelessSource(Unused(keyed=keyed))  # type: ignore[arg-type]


def sink() -> Any:
    return StatelessSink(Unused())  # type: ignore[arg-type]


def numbers(provider: StreamProvider) -> Any:
    """Begin with numbers, each with its last digit in base 3 as key."""
    return provider.new_stream().source("numbers", source()).key_distribute("digit", lambda msg: msg.value % 3)


def add(key: Any, value: int, total: int) -> tuple[int, int]:
    return total + value, total + value


def running_sum(provider: StreamProvider) -> None:
    numbers(provider).stateful_map("sum", add, default=int).sink("sums", sink())


def first_schedule(build: Build, inputs: Any, **options: Any) -> list[str]:
    """Return the lines of the error."""
    with pytest.raises(AssertionError) as complaint:
        assert_exactly_once(build, inputs, **options)
    return str(complaint.value).splitlines()


def steps(lines: list[str]) -> list[str]:
    return [line.partition(". ")[2] for line in lines if line.startswith("  ") and line[2].isdigit()]


# What is right


def test_a_running_sum_is_right() -> None:
    assert_exactly_once(running_sum, range(12))


@dataclass
class Profile:
    seen: int = 0
    names: list[str] = field(default_factory=list)


class Plain:
    """A state without an equality of its own."""

    def __init__(self) -> None:
        self.total = 0


def test_states_of_classes_with_and_without_equality() -> None:
    def meet(key: Any, name: str, profile: Profile) -> tuple[int, Profile]:
        profile.seen += 1
        profile.names.append(name)
        return profile.seen, profile

    def weigh(key: Any, name: str, plain: Plain) -> tuple[Plain, Plain]:
        plain.total += len(name)
        return plain, plain

    def build_dataflow(provider: StreamProvider) -> None:
        names = provider.new_stream().source("names", source()).key_distribute("initial", lambda msg: msg.value[0])
        names.stateful_map("profile", meet, default=Profile).sink("seen", sink())
        names.stateful_map("weight", weigh, default=Plain).sink("weights", sink())

    assert_exactly_once(build_dataflow, ["ann", "bob", "abe", "al", "ben", "cy"], max_examples=25)


@pytest.mark.fault("E20")
def test_a_ttl_map_is_right() -> None:
    def remember(key: Any, value: int, time: int, entries: ExpireMap[int, int, int]) -> Any:
        entries.insert(value, time, time + 3)
        return sorted(entries), entries

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("numbers", source())
        on_time, _ = stream.generate_epochs("now", limit_out_of_orderness(1))
        keyed = on_time.key_distribute("digit", lambda msg: msg.value % 3)
        keyed.ttl_map("recent", remember).sink("recent numbers", sink())

    assert_exactly_once(build_dataflow, [5, 3, 1, 2, 7, 7, 4, 0, 6], max_examples=15)


class Windows(StatefulLogic[Any, int, int, Any, dict[int, list[int]]]):
    """Tumbling windows of three, of each key."""

    def on_data(
        self, msg: DataMessage[Any, int, int], state: dict[int, list[int]], output: Output[Any, Any, int]
    ) -> dict[int, list[int]]:
        state.setdefault(msg.timestamp // 3, []).append(msg.value)
        return state

    def on_epoch(
        self, epoch: int, states: MutableMapping[Any, dict[int, list[int]]], output: Output[Any, Any, int]
    ) -> None:
        for key in list(states):
            windows = states[key]
            for window in [window for window in windows if (window + 1) * 3 <= epoch]:
                output.send(DataMessage(key, (window, windows.pop(window)), epoch))
            states[key] = windows or None  # type: ignore[assignment] # None drops the key


def windows(provider: StreamProvider, every: int | None = None) -> None:
    stream = provider.new_stream().source("numbers", source())
    on_time, late = stream.generate_epochs("now", limit_out_of_orderness(2), every=every)
    keyed = on_time.key_distribute("digit", lambda msg: msg.value % 2)
    keyed.stateful_op("windows", Windows(), default=dict).sink("results", sink())
    late.sink("late", sink())


@pytest.mark.fault("E19")
@pytest.mark.parametrize("every", [None, 3])
def test_windows_in_event_time_are_right(every: int | None) -> None:
    items = [Timed(value, time) for value, time in enumerate([0, 1, 4, 2, 3, 9, 1, 8, 20, 5, 21])]

    assert_exactly_once(partial(windows, every=every), items, max_examples=25)


def test_a_union_and_two_exchanges_are_right() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        left = provider.new_stream().source("left", source())
        right = provider.new_stream().source("right", source()).map("negative", lambda value: -value)
        digits = left.union(right).key_distribute("digit", lambda msg: msg.value % 3)
        sums = digits.stateful_map("sum", add, default=int)
        sums.sink("sums", sink())
        sums.key_distribute("parity", lambda msg: msg.value % 2).stateful_map(
            "count", lambda _k, _v, n: (n + 1, n + 1), int
        )

    assert_exactly_once(build_dataflow, {"left": range(5), "right": [7, 8]}, max_examples=15)


def test_a_dataflow_without_state_is_right() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("numbers", source()).filter("odd", lambda value: value % 2)
        small, large = stream.split("size", lambda msg, outputs: outputs.__setitem__(msg.value > 4, True), 2)
        small.sink("small", sink())
        large.map("as list", lambda value: [value]).flatten("items").sink("large", sink())

    assert_exactly_once(build_dataflow, range(9), max_examples=20)


def test_a_source_whose_parts_are_keys_is_right() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("logs", source(keyed=True))
        stream.stateful_map("sum", add, default=int).sink("sums", sink())

    assert_exactly_once(build_dataflow, {"logs": {"a": [1, 2, 3], "b": [4], "c": [], "d": [5, 6]}}, max_examples=15)


def test_a_source_without_keys_may_have_parts() -> None:
    assert_exactly_once(running_sum, {"numbers": {"a": range(5), "b": range(3)}}, max_examples=15)


def test_sink_with_parts_is_replaced_and_its_parts_compared() -> None:
    class Parts(Unused):
        def assign_part(self, msg: DataMessage[Any, Any, Any]) -> Any:
            return msg.value % 2

    def build_dataflow(provider: StreamProvider) -> None:
        numbers(provider).sink("parts", StatefulSink(Parts()))  # type: ignore[arg-type]

    def build_wrong(provider: StreamProvider) -> None:
        calls = count()
        parts = Parts()
        parts.assign_part = lambda msg: next(calls) % 2  # type: ignore[method-assign]
        numbers(provider).sink("parts", StatefulSink(parts))  # type: ignore[arg-type]

    assert_exactly_once(build_dataflow, range(6), max_examples=15)
    assert "sink 'parts' got different messages for key " in "\n".join(first_schedule(build_wrong, range(6)))


def test_key_local_state_at_a_constant_number_of_workers() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("logs", source(keyed=True))
        local = stream.key_local("all", lambda msg: "all")
        local.stateful_map("sum", add, default=int).sink("sums", sink())

    assert_exactly_once(build_dataflow, {"logs": {name: range(3) for name in "abcd"}}, max_examples=15)


def epochs_of_each_worker(provider: StreamProvider) -> None:
    """Build a dataflow in which each worker decides by itself which records are late."""
    on_time, late = numbers(provider).generate_epochs("now", lambda msg, _previous: msg.value)
    late.sink("late", sink())
    on_time.sink("on time", sink())


def test_result_for_a_fixed_number_of_workers_is_accepted() -> None:
    items = [5, 4, 0, 3, 2, 9, 1, 7]

    assert_exactly_once(epochs_of_each_worker, items, rescale=False, max_examples=15)
    assert_exactly_once(epochs_of_each_worker, items, parallelism=[2], max_examples=15)


def test_the_inputs_are_as_they_were_and_every_try_gets_its_own() -> None:
    items = [[1], [2]]

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("lists", source())
        stream.map("grow", lambda value: [value.append(0), len(value)][1]).sink("lengths", sink())

    assert_exactly_once(build_dataflow, items, max_examples=5)
    assert items == [[1], [2]]


# What is not


def kept_in_a_closure(provider: StreamProvider) -> None:
    totals: dict[int, int] = {}

    def total(key: int, value: int, state: int) -> tuple[int, int]:
        totals[key] = totals.get(key, 0) + value
        return totals[key], state + value

    numbers(provider).stateful_map("sum", total, default=int).sink("sums", sink())


def test_state_in_a_closure_is_found_and_told_in_a_few_lines() -> None:
    lines = first_schedule(kept_in_a_closure, range(1, 13))

    assert lines[:8] == [
        "the results differ from those of an undisturbed run, under this schedule:",
        "  1. start with 1 worker",
        "  2. process 1 record: 1",
        "  3. stop, which takes a snapshot, and restart from it",
        "  4. process the last 11 records",
        "sink 'sums' got different messages for key 1:",
        "  expected 5 at timestamp 3, 12 at timestamp 6, 22 at timestamp 9",
        "  got      4 at timestamp 3, 11 at timestamp 6, 21 at timestamp 9",
    ]
    assert lines[8:10] == [
        "usual causes:",
        "  - state kept outside of malflow: in a global, a closure, or an attribute of a logic",
    ]


TOTALS: dict[int, int] = {}


def test_state_in_a_global_is_found_though_it_survives_a_restart() -> None:
    def total(value: int) -> int:
        TOTALS[value % 2] = TOTALS.get(value % 2, 0) + value
        return TOTALS[value % 2]

    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("numbers", source()).map("total", total).sink("sums", sink())

    lines = first_schedule(build_dataflow, range(6))

    assert lines[0] == "two undisturbed runs have different results; the schedule of both:"
    assert steps(lines) == ["start with 1 worker", "process all 6 records"]


def test_state_in_a_global_that_is_built_anew_is_found() -> None:
    def total(value: int) -> int:
        TOTALS[value % 2] = TOTALS.get(value % 2, 0) + value
        return TOTALS[value % 2]

    def build_dataflow(provider: StreamProvider) -> None:
        TOTALS.clear()
        provider.new_stream().source("numbers", source()).map("total", total).sink("sums", sink())

    lines = first_schedule(build_dataflow, range(1, 7))

    assert len(steps(lines)) == 4


@pytest.mark.fault("E6")
def test_an_object_that_two_keys_share_is_found() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        shared: list[int] = []

        def collect(key: int, value: int, state: list[int] | None) -> tuple[int, list[int]]:
            state = shared if state is None else state
            state.append(value)
            return sum(state), state

        numbers(provider).stateful_map("all", collect).sink("sums", sink())

    lines = first_schedule(build_dataflow, range(1, 9))

    assert "operator 'all' has a different state for key 1:" in lines
    assert any("an object that two keys or operators share" in line for line in lines)


def test_an_object_that_two_operators_share_and_one_changes_is_found() -> None:
    def grow(key: Any, value: list[int], state: list[int] | None) -> Any:
        state = value if state is None else state
        state.append(len(value))
        return len(state), state

    def keep(key: Any, value: list[int], state: list[int] | None) -> Any:
        return sum(state or value), state or value

    def build_dataflow(provider: StreamProvider) -> None:
        lists = provider.new_stream().source("lists", source()).key_distribute("one", lambda msg: 0)
        lists.stateful_map("grow", grow).sink("lengths", sink())
        lists.stateful_map("keep", keep).sink("sums", sink())

    lines = first_schedule(build_dataflow, [[1], [2], [3], [4]])

    assert any("operator 'keep' has a different state for key 0" in line for line in lines)
    assert len(steps(lines)) <= 5


@pytest.mark.fault("E23")
@pytest.mark.parametrize("make", [random.random, time.monotonic_ns])
def test_values_that_depend_on_chance_or_time_are_found(make: Callable[[], Any]) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("numbers", source()).map("stamp", lambda value: (value, make())).sink(
            "out", sink()
        )

    lines = first_schedule(build_dataflow, range(4))

    assert lines[0] == "two undisturbed runs have different results; the schedule of both:"
    assert "  - a value that depends on the clock, on random numbers, or on the iteration order of a set" in lines


class Pairs:
    """A logic that keeps what it should not: every second message waits for the next one."""

    def __init__(self) -> None:
        self.waiting: Any = None

    def on_data(self, msg: DataMessage[Any, Any, Any], output: Output[Any, Any, Any]) -> None:
        if self.waiting is None:
            self.waiting = msg.value
            return
        output.send(DataMessage(msg.key, (self.waiting, msg.value), msg.timestamp))
        self.waiting = None


def test_a_stateless_logic_that_keeps_messages_is_found() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("numbers", source()).stateless_op("pairs", Pairs()).sink("out", sink())

    lines = first_schedule(build_dataflow, range(6))

    assert steps(lines) == [
        "start with 1 worker",
        "process 1 record: 0",
        "stop, which takes a snapshot, and restart from it",
        "process the last 5 records",
    ]
    assert "  expected (0, 1) at timestamp 1, (2, 3) at timestamp 3, (4, 5) at timestamp 5" in lines


def test_dependence_on_the_number_of_workers_is_found() -> None:
    lines = first_schedule(epochs_of_each_worker, [5, 4, 0, 3, 2, 9, 1, 7])

    assert len(steps(lines)) == 2
    assert steps(lines)[0] in ("start with 2 workers", "start with 3 workers")
    assert lines[lines.index("usual causes:") + 1].endswith("pass rescale=False if intended")


def test_a_state_that_can_not_be_written_is_an_error_of_its_operator() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        numbers(provider).stateful_map("lambdas", lambda key, value, state: (value, lambda: value)).sink("out", sink())

    with pytest.raises(OperatorError, match=r"operator 'lambdas' failed at key 0: its state .* can't be written"):
        assert_exactly_once(build_dataflow, range(3))


def test_failure_after_a_restart_is_raised_with_its_schedule() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        seen: set[int] = set()

        def look_up(key: int, value: int, state: int) -> tuple[int, int]:
            if state == 0:
                seen.add(key)
            elif key not in seen:
                raise KeyError(key)
            return value, state + 1

        numbers(provider).stateful_map("look up", look_up, default=int).sink("out", sink())

    with pytest.raises(OperatorError, match="operator 'look up' failed at key 0") as failure:
        assert_exactly_once(build_dataflow, range(6))

    (note,) = failure.value.__notes__
    assert steps(note.splitlines()) == [
        "start with 1 worker",
        "process 1 record: 0",
        "stop, which takes a snapshot, and restart from it",
        "process the last 5 records",
    ]


# How it is asked


def test_the_same_schedules_are_tried_every_time_and_others_with_a_seed() -> None:
    def tried(**options: Any) -> list[int]:
        values: list[int] = []

        def build_dataflow(provider: StreamProvider) -> None:
            provider.new_stream().source("numbers", source()).inspect("note", lambda msg, _: values.append(msg.value))

        assert_exactly_once(build_dataflow, range(5), max_examples=10, **options)
        return values

    assert tried() == tried()
    assert tried(seed=1) == tried(seed=1)
    assert tried(seed=1) != tried(seed=2)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([1], "the dataflow has 2 sources: 'left', 'right'; pass a mapping from name to items"),
        ({"left": [1]}, "inputs has no 'right'; every source of the dataflow needs its items"),
        ({"left": [1], "rihgt": {}}, "inputs has 'rihgt'; the sources of the dataflow are 'left', 'right'"),
        ({"left": [1], "right": [1]}, "source 'right' keys each record by its part; pass a mapping from part"),
        ({"left": 1, "right": {}}, "source 'left' needs an iterable of items; got 1"),
        ({"left": [1, CRASH], "right": {}}, "source 'left' contains CRASH; here stops and crashes come"),
    ],
)
def test_inputs_that_do_not_fit_the_sources_are_refused(inputs: Any, message: str) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("left", source()).sink("out", sink())
        provider.new_stream().source("right", source(keyed=True)).sink("other", sink())

    with pytest.raises(GraphError) as refused:
        assert_exactly_once(build_dataflow, inputs)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "options", [{"parallelism": []}, {"parallelism": [0]}, {"parallelism": "2"}, {"max_examples": 0}]
)
def test_numbers_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match=f"{next(iter(options))} must be"):
        assert_exactly_once(running_sum, range(3), **options)


def test_a_malformed_dataflow_is_refused() -> None:
    with pytest.raises(GraphError, match="operator names must be unique"):
        assert_exactly_once(lambda provider: [running_sum(provider), running_sum(provider)], range(3))


def test_it_says_what_to_install_where_hypothesis_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)

    with pytest.raises(MissingDependency, match=r"malflow\[testing\]"):
        assert_exactly_once(running_sum, range(3))


def test_no_input_is_no_difference() -> None:
    assert_exactly_once(running_sum, [], max_examples=5)


def test_real_sources_and_sinks_stand_for_nothing() -> None:
    seen: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("numbers", SingleIteratorSource([100]))
        stream.map("double", lambda value: 2 * value).sink("seen", seen)
        provider.new_stream().source("other", StatefulSource(Unused())).sink("none", sink())  # type: ignore[arg-type]

    assert_exactly_once(build_dataflow, {"numbers": [1], "other": []}, max_examples=5)
    assert seen.values == []


def test_the_end_of_the_input_is_compared_unless_it_is_kept() -> None:
    def at_the_end(provider: StreamProvider) -> None:
        stream, _ = numbers(provider).generate_epochs("epochs", lambda *_: None)
        stream.key_distribute("all", lambda _: 0).stateful_op("it", Counting()).sink("out", sink())

    calls = 0

    class Counting(StatefulLogic[Any, Any, Any, Any, int]):
        def on_data(self, msg: Any, state: int | None, output: Any) -> int:
            return 1

        def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
            nonlocal calls
            calls += 1
            output.send(DataMessage(0, calls, epoch))

    assert_exactly_once(at_the_end, [1, 2], max_examples=3, at_end="keep")
    assert calls == 0
    with pytest.raises(AssertionError, match="differ"):
        assert_exactly_once(at_the_end, [1, 2], max_examples=3)
    with pytest.raises(GraphError, match="at_end must be 'finish' or 'keep'; got None"):
        assert_exactly_once(at_the_end, [1, 2], at_end=None)  # type: ignore[arg-type]


def test_a_value_that_changes_after_it_was_emitted_is_found() -> None:
    def build(provider: StreamProvider) -> None:
        keyed = numbers(provider).key_distribute("all", lambda _: 0)
        keyed.stateful_map("grow", lambda _, v, s: (s.append(v) or {"a": {"b": s}}, s), list).sink("sink", sink())

    with pytest.raises(OperatorError, match="was changed before") as failure:
        assert_exactly_once(build, range(4), max_examples=2)
    assert failure.value.operator == "grow"
    assert "debug=True" in failure.value.__notes__[-1]


def test_a_pause_is_a_tick_of_the_run_with_checks_too() -> None:
    def build(provider: StreamProvider) -> None:
        keyed = numbers(provider).key_distribute("all", lambda _: 0)
        keyed.stateful_map("grow", lambda _, v, s: (s.append(v) or {"a": {"b": s}}, s), list).sink("sink", sink())

    assert_exactly_once(build, [1, PAUSE, 2, PAUSE, PAUSE(3), 4], max_examples=2)  # no two records share a tick
