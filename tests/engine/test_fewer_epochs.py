"""An exchange sends only the epochs that operators after it tell apart, and nobody can see it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, StreamProvider, agg
from malflow.engine.ticks import PollPacing
from malflow.event_time.panes import CalendarPanes, RegularPanes, Unit, fitted
from malflow.message import MAX
from malflow.operators.epochs.fewer import FewerEpochs
from malflow.records.batch import Batch
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import ScriptedSource, Timed
from malflow.windows import calendar, counting, session, sliding, tumbling
from tests.kit.driving import compiled

SECONDS = datetime(2026, 3, 1, tzinfo=UTC)
PANES: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "ints": (RegularPanes(10, 3), lambda second: second),
    "floats": (RegularPanes(10.0, 0.0), lambda second: second / 4),
    "datetimes": (
        RegularPanes(timedelta(seconds=10), timedelta(0)),
        lambda second: SECONDS + timedelta(seconds=second),
    ),
    "minutes": (CalendarPanes(Unit.MINUTE, UTC), lambda second: SECONDS + timedelta(seconds=7 * second)),
}


@st.composite
def batches(draw: st.DrawFn, kind: str) -> Batch:
    """Draw a batch with ascending epochs."""
    _, moment = PANES[kind]
    steps = draw(st.lists(st.tuples(st.integers(0, 120), st.integers(1, 8)), min_size=1, max_size=60))
    positions = accumulate(position for position, _ in steps)
    epochs: list[tuple[int, Any]] = [
        (at, moment(epoch)) for at, epoch in zip(positions, accumulate(step for _, step in steps), strict=True)
    ]
    count = epochs[-1][0] + draw(st.integers(0, 3))
    if draw(st.booleans()):
        epochs.append((count, MAX))
    return Batch(None, range(count), [moment(0)] * count, epochs)


@given(data=st.data(), names=st.lists(st.sampled_from(["a", "b"]), max_size=2))
@pytest.mark.parametrize("kind", PANES)
def test_fewer_epochs_close_the_same_panes_after_the_same_records(kind: str, data: Any, names: list[str]) -> None:
    batch = data.draw(batches(kind))
    partitions = [PANES[kind][0]] * len(names)
    fewer = FewerEpochs(partitions).of(batch)
    assert (fewer.values, fewer.timestamps) == (batch.values, batch.timestamps)
    assert set(fewer.epochs) <= set(batch.epochs)
    assert list(fewer.epochs) == sorted(fewer.epochs, key=batch.epochs.index)
    real = [epoch for epoch in batch.epochs if epoch[1] is not MAX]
    assert fewer.epochs[-len(batch.epochs) + len(real) - 1 :] == batch.epochs[len(real) - 1 :], "the last ones stay"
    if not len(batch):
        return
    for partition in partitions:
        panes = fitted(partition, batch.timestamps[0])
        for count in range(len(batch) + 1):
            assert closed(panes, fewer, count) == closed(panes, batch, count), f"after {count} records"


def closed(panes: Any, batch: Batch, count: int) -> int:
    """Return the number of the first open pane once some records and the epochs between them have passed."""
    passed = [epoch for position, epoch in batch.epochs if position <= count and epoch is not MAX]
    if not passed:
        return -(1 << 60)
    number: int = panes.number(passed[-1])
    return number + 1 if panes.last(number) <= passed[-1] else number


def test_epochs_between_two_panes_cost_nothing() -> None:
    epochs = [(position, position) for position in range(1, 8_001)]
    batch = Batch(None, range(8_000), range(8_000), epochs)
    assert len(FewerEpochs((RegularPanes(4_000, 0),)).of(batch).epochs) < 50
    assert len(FewerEpochs(()).of(batch).epochs) < 50
    assert [epoch for _, epoch in FewerEpochs((RegularPanes(4_000, 0),)).of(batch).epochs if epoch % 4_000 == 3_999]


@pytest.mark.parametrize(
    ("timestamps", "epochs"),
    [
        ([0.5] * 3, [(1, 1), (2, 2), (3, 3)]),  # of another type
        (["a"] * 3, [(1, "b"), (2, "c"), (3, "d")]),
        ([], [(0, 1), (0, 2), (0, 3)]),  # of a type that is not known
        ([datetime(2026, 1, 1)] * 3, [(at, SECONDS + timedelta(at)) for at in range(3)]),
    ],
)
def test_epochs_that_do_not_fit_the_panes_all_stay(timestamps: list[Any], epochs: list[Any]) -> None:
    batch = Batch(None, range(len(timestamps)), timestamps, epochs)
    size: Any = timedelta(1) if isinstance(timestamps and timestamps[0], datetime) else 10
    assert FewerEpochs((RegularPanes(size, size - size),)).of(batch).epochs == epochs


def exchanged(make: Callable[[Any], Any]) -> Any:
    """Return by which partitions the operators after an exchange tell epochs apart."""

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("numbers", StatefulSource(ScriptedSource({"a": []})))
        timed = stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=1)
        make(timed.key_distribute("keys", lambda msg: msg.value)).sink("out", VecSink())

    (channel,) = [it for it in compiled(build).channels if it.name == "keys"]
    told = channel.tells_by
    return told if told is None else len(told)


class Timer:
    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        output.wake(msg.timestamp + 1)
        return state

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> Any:
        return None


class Watching:
    def on_data(self, msg: Any, output: Any) -> None:
        output.send(msg)

    def on_epoch(self, epoch: Any, output: Any) -> None: ...


ALL, NO_PANES = None, 0
PROGRAMS: dict[str, tuple[Callable[[Any], Any], int | None]] = {
    "map": (lambda it: it.map("m", str).filter("f", bool).flat_map("l", list), NO_PANES),
    "stateful map": (lambda it: it.stateful_map("s", lambda key, value, state: (value, state)), NO_PANES),
    "running": (lambda it: it.aggregate("s", agg.sum()).changes("c"), NO_PANES),
    "operator": (lambda it: it.stateful_op("s", lambda msg, state, output: None), NO_PANES),
    "counted windows": (lambda it: it.window(counting(3)).aggregate("w", agg.sum()), NO_PANES),
    "new timestamps": (
        lambda it: it.assign_timestamps("t", lambda msg: 1).generate_epochs("e", lambda msg, _: 1, per_part=False)[0],
        NO_PANES,
    ),
    "windows": (lambda it: it.window(tumbling(4)).aggregate("w", agg.sum()), 1),
    "sliding": (lambda it: it.window(sliding(6, 4)).aggregate("w", agg.sum()), 1),
    "windows of windows": (
        lambda it: it.window(tumbling(4)).aggregate("w", agg.sum()).window(tumbling(6)).aggregate("v", agg.count()),
        2,
    ),
    "rollup": (lambda it: it.rollup("r", ["minute", "hour"], agg.count())["hour"], 2),
    "later exchange": (
        lambda it: it.map("m", abs).key_distribute("k", lambda msg: 1).window(tumbling(4)).aggregate("w", agg.sum()),
        1,
    ),
    "early": (lambda it: it.window(tumbling(4), early=1).aggregate("w", agg.sum()), ALL),
    "sessions": (lambda it: it.window(session(4)).aggregate("w", agg.sum()), ALL),
    "sort": (lambda it: it.sort("s"), ALL),
    "timers": (lambda it: it.stateful_op("t", Timer()), ALL),
    "on_epoch": (lambda it: it.stateless_op("t", Watching()), ALL),
    "inspected": (lambda it: it.window(tumbling(4)).aggregate("w", agg.sum()).inspect_frontier("i", print), ALL),
    "time to live": (lambda it: it.ttl_map("t", lambda key, value, time, them: (value, them)), ALL),
    "joins": (lambda it: it.interval_join("j", it.map("m", abs), before=1, after=1), ALL),
    "second epochs": (lambda it: it.generate_epochs("e", lambda msg, _: msg.timestamp, per_part=False)[0], ALL),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_program_gets_the_epochs_that_it_tells_apart(program: str) -> None:
    make, panes = PROGRAMS[program]
    assert exchanged(make) == panes


WINDOWS: dict[str, Callable[[Any], Any]] = {
    "sliding": lambda it: it.window(sliding(9, 4)).aggregate("w", agg.count(), agg.sum()),
    "hours": lambda it: it.window(calendar("minute")).aggregate("w", agg.count(), agg.sum()),
    "of windows": lambda it: (
        it.window(tumbling(5)).aggregate("w", agg.count()).window(tumbling(15)).aggregate("v", agg.sum())
    ),
}


@given(
    data=st.data(),
    parts=st.dictionaries(
        st.sampled_from("abcd"), st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 4)), max_size=80), min_size=1
    ),
    workers=st.sampled_from([2, 3]),
)
@pytest.mark.parametrize("kind", WINDOWS)
def test_results_are_as_with_all_epochs(kind: str, data: Any, parts: dict[str, Any], workers: int) -> None:
    moments = kind == "hours"
    script = {}
    for part, steps in parts.items():
        times = list(accumulate((step for _, step in steps), lambda now, step: max(0, now + step)))
        script[part] = [
            Timed((key, time), SECONDS + timedelta(seconds=9 * time) if moments else time)
            for (key, _), time in zip(steps, times, strict=True)
        ]
    bound = data.draw(st.integers(0, 3))
    limit = data.draw(st.sampled_from([1, 5, 64]))

    def results(of: Callable[[Any, Batch], Batch] = FewerEpochs.of) -> list[Any]:
        kept: VecSink[Any, Any, Any] = VecSink()

        def build(provider: StreamProvider) -> None:
            stream = provider.new_stream().source("numbers", StatefulSource(ScriptedSource(script)))
            late_by = timedelta(seconds=9 * bound) if moments else bound
            timed = stream.event_time("times", lambda msg: msg.timestamp, out_of_orderness=late_by)
            keyed = timed.key_distribute("keys", lambda msg: msg.value[0]).map("number", lambda value: value[1])
            WINDOWS[kind](keyed).sink("out", kept)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FewerEpochs, "of", of)
            patch.setattr(PollPacing, "note", lambda pacing, *_: setattr(pacing, "limit", limit))  # no clock
            SingleThreadRuntime(build, parallelism=workers).execute()
        return sorted(((it.key, it.value, it.timestamp) for it in kept), key=repr)

    assert results() == results(lambda _, batch: batch)
