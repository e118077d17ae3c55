"""Live answers on Spark equal counts by hand, through lost tasks, killed processes and crashes of the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from malflow import StreamProvider, agg
from malflow.engine.compiler import compile_graph
from malflow.engine.plan import Program
from malflow.graph import Graph
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.requests.queries import StateAnswer
from malflow.runtime.requests.state_views import StateView, WindowsView
from malflow.snapshot.persistence import NoPersistence
from malflow.sources import StatefulSource
from malflow.windows import tumbling
from tests.kit.backends import in_memory
from tests.spark.simulation import Cluster, Plan, settings_at, simulated
from tests.spark.test_takeovers import Polls

KEYS = "abcd"
POLLS = {
    "p": ["ab", "", "acc", "d", "aab", "cd", "", "bbb", "a", "dc"],
    "q": ["c", "a", "", "bd", "a", "a", "c", "", "ad", "b"],
}
LAST = len(POLLS["p"])


def count_each(_key: str, _value: str, so_far: int) -> tuple[int, int]:
    return so_far + 1, so_far + 1


def counting() -> Program:
    """Count letters, in two stages: by letter, and in one window that never ends."""
    graph = Graph()
    letters = StreamProvider(graph).new_stream().source("letters", StatefulSource(Polls(POLLS)))
    timed, _ = letters.generate_epochs("epochs", lambda msg, _: msg.timestamp - 1)
    keyed = timed.key_distribute("letter", lambda msg: msg.value)
    again = keyed.stateful_map("count", count_each, default=int).key_distribute("again", lambda msg: msg.key)
    again.window(tumbling(1_000)).aggregate("window", agg.count())
    return compile_graph(graph)


def counted_until(tick: int) -> Mapping[str, int]:
    return Counter(letter for polls in POLLS.values() for poll in polls[:tick] for letter in poll)


class Asking(Cluster):
    """Asks after each tick; the requests outlive the driver, as those of a handle outlive an attempt."""

    def __init__(self, plans: list[Plan]) -> None:
        super().__init__(plans, self._ask_states, tries=1)
        self.asked: list[tuple[Any, StateAnswer[Any]]] = []
        self.kept: RunRequests | None = None

    def new_requests(self, program: Program) -> RunRequests:
        if self.kept is None:
            self.kept = RunRequests()
            self.kept.program = program
        return self.kept

    def _ask_states(self, _spec: Any, _seen: Any) -> None:
        requests = self.kept
        assert requests is not None
        if requests.is_over:
            return
        view: StateView[str, int] = StateView(requests, "count")
        self.asked += [(key, view.get(key, default=0)) for key in KEYS[:2]]
        self.asked += [("many", view.get_many(KEYS)), ("items", view.items(limit=4))]
        windows: WindowsView[str, int, int] = WindowsView(requests, "window")
        self.asked += [(("window", key), windows.get(key)) for key in KEYS[2:]]


def check(asked: list[tuple[Any, StateAnswer[Any]]]) -> set[int]:
    """Compare the answers with the letters so far; return their ticks."""
    ticks = set()
    for what, future in asked:
        assert future.done(), what
        if future.exception(0) is not None:
            assert "the run ended before" in str(future.exception(0)) or "failed 2 times" in str(future.exception(0))
            continue
        tick = future.tick
        assert tick is not None
        ticks.add(tick)
        expected = counted_until(tick)
        if what in ("many", "items"):
            assert dict(future.result(0)) == expected
        elif isinstance(what, str):
            assert future.result(0) == expected[what]
        else:
            found = [it.value for it in future.result(0)]
            assert found == ([expected[what[1]]] if expected[what[1]] else [])
    return ticks


def run(plans: list[Plan], workers: int, *, keeps: bool = True) -> Asking:
    with TemporaryDirectory() as scratch, simulated():
        cluster = Asking(plans)
        program = counting()
        cluster.run(program, settings_at(scratch, in_memory() if keeps else NoPersistence()), workers)
        assert cluster.kept is not None
        assert cluster.kept.is_over
    return cluster


@st.composite
def plans(draw: Any) -> Plan:
    """Draw the events of a tick."""
    return Plan(
        places=tuple(draw(st.lists(st.integers(0, 2), min_size=1, max_size=4))),
        again=frozenset(draw(st.sets(st.integers(0, 5), max_size=2))),
        killed=draw(st.none() | st.integers(0, 2)),
        asks=draw(st.booleans()),
        writes=draw(st.booleans()),
        rescale=draw(st.none() | st.integers(1, 3)),
        crash=draw(st.integers(0, 5)) == 0,
    )


@pytest.mark.fault("K11")
@pytest.mark.slow
@settings(max_examples=max(settings().max_examples // 5, 3))
@example(
    plans=[
        Plan(),
        Plan(asks=True),
        Plan(places=(1,)),
        Plan(again=frozenset({0, 1})),
        Plan(crash=True),
        Plan(rescale=3),
    ],
    workers=2,
)
@given(plans=st.lists(plans(), max_size=9), workers=st.integers(1, 3))
def test_answers_are_the_states_after_their_tick_on_spark(plans: list[Plan], workers: int) -> None:
    cluster = run(plans, workers)
    ticks = check(cluster.asked)
    assert max(ticks) >= LAST - 2, "the last ticks are without faults"


@pytest.mark.fault("K11")
@pytest.mark.slow
def test_a_question_with_which_two_attempts_fail_is_dropped() -> None:
    cluster = run([Plan(), Plan(asks=True), Plan(), Plan(crash=True), Plan(crash=True)], 2)
    errors = [it.exception(0) for _, it in cluster.asked]
    assert "'count' was not asked: the run failed 2 times while it was asked" in {str(it)[9:] for it in errors}
    assert LAST in check(cluster.asked)


@pytest.mark.slow
def test_many_questions_travel_in_the_scratch_folder_and_are_removed() -> None:
    asked: list[StateAnswer[Any]] = []

    class Many(Asking):
        def _ask_states(self, spec: Any, seen: Any) -> None:
            if seen.tick < LAST - 1 and self.kept is not None:
                view: StateView[str, int] = StateView(self.kept, "count")
                asked.extend([view.get_many([*KEYS, *(f"{key}{number}" * 9 for number in range(900))]) for key in KEYS])
            stored.append(len([*Path(spec.scratch.url).rglob("answers/*")]))

    stored: list[int] = []
    with TemporaryDirectory() as scratch, simulated():
        Many([]).run(counting(), settings_at(scratch, NoPersistence()), 2)
    assert [it.result(0) for it in asked] == [counted_until(it.tick or 0) for it in asked]
    assert max(stored) <= 6, "of two ticks at most"
    assert stored[-1] <= 3
