"""A schedule is executed as described, and described as it is executed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from malflow import DataMessage, StatefulLogic, StreamProvider
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.testing.inputs import Feed, feed_of, tick_times
from malflow.testing.schedules import CRASHES, Event, Schedule, Step, description, schedules
from malflow.testing.shared_count import SharedCount
from malflow.testing.trial import Outcome, built, try_out

pytestmark = pytest.mark.slow

STOP, SNAPSHOT, CRASH, RESCALE, *_ = Event


class Log(StatefulLogic[Any, Any, Any, Any, int]):
    """Notes the ticks, and the records with the state they meet."""

    def __init__(self, lines: list[Any]) -> None:
        self.lines = lines

    def on_schedule(self, states: Any, output: Any) -> None:
        self.lines.append("tick")

    def on_data(self, msg: DataMessage[Any, Any, Any], state: int, output: Any) -> int:
        self.lines.append((msg.value, state))
        output.send(msg)
        return state + 1


def logged(lines: list[Any]) -> Callable[[StreamProvider], None]:
    def build_dataflow(provider: StreamProvider) -> None:
        lines.append("build")
        stream = provider.new_stream().source("in", SingleIteratorSource([]))
        stream = stream.inspect("workers", lambda _msg, context: lines.append(len(context.workers)))
        keyed = stream.key_distribute("key", lambda msg: "k")
        keyed.stateful_op("count", Log(lines), default=int).sink("out", VecSink())

    return build_dataflow


def carry_out(schedule: Schedule, items: Any = "abc") -> tuple[list[Any], Outcome]:
    """Return the events of each worker without idle ticks, and their outcome."""
    lines: list[Any] = []
    build_dataflow = logged(lines)
    feed = feed_of(items, built(build_dataflow).sources)
    lines.clear()
    outcome = try_out(build_dataflow, feed, schedule, tick_times(feed, 1), by_worker=False)
    return lines, outcome


def records(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line != "tick"]


def texts(written: dict[str, list[Any]]) -> list[str]:
    return [it.text[1] for it in written["out"]]


def test_a_tick_has_one_record() -> None:
    lines, _ = carry_out(Schedule(1))

    assert lines == ["build", *(x for n, v in enumerate("abc") for x in (1, "tick", (v, n))), "tick"]


@pytest.mark.parametrize(
    ("event", "expected", "written"),
    [
        (SNAPSHOT, ["build", 1, ("a", 0), 1, ("b", 1), 1, ("c", 2)], "abc"),
        (STOP, ["build", 1, ("a", 0), "build", 3, ("b", 1), 3, ("c", 2)], "abc"),
        (CRASH, ["build", 1, ("a", 0), "build", 3, ("a", 0), 3, ("b", 1), 3, ("c", 2)], "aabc"),
        (RESCALE, ["build", 1, ("a", 0), 3, ("b", 1), 3, ("c", 2)], "abc"),
    ],
)
def test_each_event_does_what_it_says(event: Event, expected: list[Any], written: str) -> None:
    lines, outcome = carry_out(Schedule(1, (Step(1, event, 3),)))

    assert records(lines) == expected
    assert "".join(texts(outcome.written)) == written
    assert "".join(texts(outcome.kept)) == "abc"
    assert [(state.key, state.text) for state in outcome.states["count"].values()] == [("'k'", "3")]


def test_a_crash_goes_back_to_the_last_snapshot_as_often_as_it_happens() -> None:
    lines, outcome = carry_out(Schedule(2, (Step(1, SNAPSHOT, 1), Step(1, CRASH, 2), Step(2, CRASH, 1))))

    assert records(lines) == [
        *("build", 2, ("a", 0), 2, ("b", 1)),
        *("build", 2, ("b", 1), 2, ("c", 2)),
        *("build", 1, ("b", 1), 1, ("c", 2)),
    ]
    assert texts(outcome.written) == ["a", "b", "b", "c", "b", "c"]
    assert texts(outcome.kept) == ["a", "b", "c"]


def test_a_schedule_is_told_in_lines() -> None:
    steps = (
        Step(1, CRASH, 2),
        Step(2, SNAPSHOT, 9),
        Step(0, RESCALE, 3),
        Step(5, CRASH, 3),
        Step(0, RESCALE, 3),
        Step(1, STOP, 1),
        Step(99, STOP, 1),
    )
    sources = built(logged([])).sources

    assert description(Schedule(1, steps), feed_of(range(9), sources)) == [
        "start with 1 worker",
        "process 1 record: 0",
        "crash, and restart from the beginning with 2 workers",
        "process 2 records: 0, 1",
        "take a snapshot",
        "continue with 3 workers",
        "process records 3 to 7",
        "crash, and restart from the last snapshot",
        "continue with as many workers",
        "process 1 record: 2",
        "stop, which takes a snapshot, and restart from it with 1 worker",
        "process the last 6 records",
        "stop, which takes a snapshot, and restart from it",
    ]


def test_crashes_around_a_commit_are_told_in_lines() -> None:
    steps = (Step(1, Event.UNPREPARED, 1), Step(1, Event.DIVIDED, 2), Step(1, Event.UNPREPARED, 2))

    assert description(Schedule(1, steps), feed_of(range(3), built(logged([])).sources)) == [
        "start with 1 worker",
        "process 1 record: 0",
        "begin a snapshot, crash before it is durable, and restart from the beginning",
        "process 1 record: 0",
        "take a snapshot, crash before the dead letters are durable, and restart from it with 2 workers",
        "process 1 record: 1",
        "begin a snapshot, crash before it is durable, and restart from the last snapshot",
        "process 2 records: 1, 2",
    ]


def test_records_of_several_sources_come_in_turn() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        for name in ("left", "right"):
            provider.new_stream().source(name, SingleIteratorSource([]))

    feed = feed_of({"right": "x", "left": {"p": "ab", "q": "c"}}, built(build_dataflow).sources)

    assert [(it.source, it.part, it.value) for it in feed.records] == [
        *(("left", "p", "a"), ("left", "q", "c")),
        *(("right", feed.records[2].part, "x"), ("left", "p", "b")),
    ]
    assert description(Schedule(1, (Step(2, SNAPSHOT, 1),)), feed) == [
        "start with 1 worker",
        "process 2 records: 'a' of 'left', 'c' of 'left'",
        "take a snapshot",
        "process 2 records: 'x' of 'right', 'b' of 'left'",
    ]


@pytest.mark.parametrize("event", [STOP, SNAPSHOT, CRASH, RESCALE])
def test_schedules_have_every_event(event: Event) -> None:
    found = find(
        schedules([1, 2, 3], 20, rescale=True),
        lambda schedule: any(step.event is event and step.records and step.workers == 3 for step in schedule.steps),
        settings=settings(database=None, derandomize=True),
    )

    assert found == Schedule(1, (Step(1, event, 3),))


def test_schedules_crash_around_commits_where_they_may() -> None:
    met: set[Event] = set()

    def sees_all(schedule: Schedule) -> bool:
        met.update(step.event for step in schedule.steps)
        return met == {*Event}

    few = settings(database=None, derandomize=True, max_examples=100, phases=(Phase.generate,))
    assert find(schedules([1, 2], 9, rescale=True, commits=True), sees_all, settings=few)


@given(st.data())
def test_schedules_keep_their_workers_where_they_must(data: st.DataObject) -> None:
    schedule = data.draw(schedules([2, 3], 20, rescale=False))

    assert all(step.workers == schedule.workers and step.event is not RESCALE for step in schedule.steps)
    assert not CRASHES.keys() & {step.event for step in schedule.steps}


def test_a_feed_gives_what_is_allowed_and_no_more() -> None:
    feed: Feed = feed_of("ab", built(logged([])).sources)
    part = feed.source("in", keyed=False).build_part(feed.records[0].part, None)
    polled = []
    for allowed in (0, 1, 2):
        feed.allowed = allowed
        polled.append(part.poll_batch(9))

    assert polled == [([], []), (["a"], [0]), (["b"], [1])]
    assert part.is_finished()


def sums(provider: StreamProvider) -> None:
    numbers = provider.new_stream().source("numbers", SingleIteratorSource(()))
    keyed = numbers.key_distribute("key", lambda msg: msg.value % 3)
    keyed.stateful_map("sum", lambda _, value, total: (total + value, total + value), default=int).sink(
        "out", VecSink()
    )


@pytest.mark.slow
def test_rescale_to_as_many_processes_between_two_snapshots() -> None:
    feed = feed_of([1, 2, 3], built(sums).sources)
    steps = (Step(0, Event.STOP, 1), Step(1, Event.RESCALE, 1), Step(0, Event.STOP, 1))
    with closing(SharedCount()) as feed.count:
        undisturbed, disturbed = (
            try_out(sums, feed, schedule, tick_times(feed, 1), by_worker=False, runtime="processes")
            for schedule in (Schedule(1), Schedule(1, steps))
        )
    assert disturbed.states == undisturbed.states
    assert disturbed.kept == undisturbed.kept
