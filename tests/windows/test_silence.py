"""Time that advances without input, against a model that uses the whole past of each part."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, agg, limit_out_of_orderness
from malflow.operators.epochs.idle_time import moved_on
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource, StatefulSource
from malflow.testing.driven import DrivenRun
from malflow.windows import Timing, tumbling
from tests.kit.driving import Store, compiled
from tests.kit.ticking import PARTS, HandClock, Polls, Step, scripts

pytestmark = pytest.mark.slow

SIZE = 10


steps = scripts()


class Flow:
    """A dataflow over three parts, which counts in windows after an exchange; and what it did, tick by tick."""

    def __init__(self, script: Sequence[Step], bound: int, **options: Any) -> None:
        polls: dict[str, list[Sequence[int]]] = {part: [] for part in PARTS}
        for step in script:
            for index, part in enumerate(PARTS):
                polls[part].append(step.stamps if step.part == index else ())
        self.script, self.bound, self.options = script, bound, options
        self.source = StatefulSource(Polls(polls, keyed=True))
        self.on_time: list[Any] = []
        self.late: list[Any] = []
        self.results: VecSink[Any, Any, Any] = VecSink()
        self.closed: list[int] = []
        self.epochs: dict[int, Any] = {}
        self.frontiers: list[dict[int, Any]] = []
        self.clock = HandClock()

    def build(self, provider: Any) -> None:
        stream = provider.new_stream().source("source", self.source)
        generator = limit_out_of_orderness(self.bound)
        on_time, late = stream.generate_epochs("epochs", generator, **self.options)
        on_time = on_time.inspect_frontier("epoch", lambda epoch, ctx: self.epochs.update({ctx.worker_id: epoch}))
        on_time.inspect("on time", lambda msg, _: self.on_time.append((msg.value, msg.timestamp)))
        late.inspect("late", lambda msg, _: self.late.append((msg.value, msg.timestamp)))
        keyed = on_time.key_distribute("all", lambda msg: "all")
        keyed.window(tumbling(SIZE)).aggregate("counts", agg.count()).sink("results", self.results)

    def run(self, workers: int, between: Callable[[int, DrivenRun], DrivenRun] | None = None) -> None:
        program, now = compiled(self.build), 0
        run = Store().restore(program, workers)
        for index, step in enumerate(self.script):
            now += step.gap
            self.clock.set(now)
            run.ticks.clock = self.clock
            run.tick()
            self.closed.append(len(self.results.values))
            self.frontiers.append(dict(self.epochs))
            if between is not None:
                run = between(index, run)
        run.end()
        run.close()

    def check(self) -> None:
        """Each record is on time or late, and each one on time is in one window."""
        records = Counter(
            ((PARTS[it.part], at, n), stamp)
            for at, it in enumerate(self.script)
            if it.part is not None
            for n, stamp in enumerate(it.stamps)
        )
        assert Counter(self.on_time) + Counter(self.late) == records
        counts = Counter(stamp // SIZE * SIZE for _, stamp in self.on_time)
        assert {it.value.start: it.value.value for it in self.results} == counts
        assert len(self.results.values) == len(counts)


class Model:
    """What is late, and the epochs behind each tick: `worker_of` maps a part to its worker.

    Members are what has an epoch: a part, or a worker.
    """

    def __init__(self, flow: Flow, worker_of: Sequence[int], idle_after: int | None, second: int | None) -> None:
        per_part = flow.options["per_part"]
        member_of = range(3) if per_part else worker_of
        worker_by = dict(zip(member_of, worker_of, strict=True))
        self.late: list[Any] = []
        self.frontiers: list[dict[int, Any]] = []
        epoch: dict[int, int] = {}
        busy_at = dict.fromkeys(member_of, -1)  # the last tick with a record
        times = [sum(step.gap for step in flow.script[: at + 1]) for at in range(len(flow.script))]
        base: int | None = None
        for at, step in enumerate(flow.script):
            silence = {it: times[at - 1] - times[last + 1] for it, last in busy_at.items() if last < at - 1}
            idle = {it for it, past in silence.items() if idle_after is not None and past >= idle_after}
            busy = busy_at.keys() - idle
            target: int | None = None
            if idle and busy:
                target = min(epoch[it] for it in busy) if all(it in epoch for it in busy) else None
            elif idle and epoch and second is not None and idle_after is not None:
                base = max(epoch.values()) if base is None else base
                target = base + (min(silence.values()) - idle_after) * second
            base = None if busy else base
            if target is not None:
                epoch.update({it: max(epoch.get(it, target), target) for it in idle})
            for index, stamp in enumerate(step.stamps if step.part is not None else ()):
                assert step.part is not None
                member = member_of[step.part]
                if member in epoch and stamp <= epoch[member]:
                    self.late.append(((PARTS[step.part], at, index), stamp))
                epoch[member] = max(epoch.get(member, -(10**9)), stamp - flow.bound)
                busy_at[member] = at
            if at == len(flow.script) - 1:
                break  # all parts end, so that they hold nobody back
            held = {it: [own for own, at in worker_by.items() if at == it] for it in worker_of}
            self.frontiers.append(
                {it: min(epoch[own] for own in them) for it, them in held.items() if all(own in epoch for own in them)}
            )


@given(
    script=steps,
    bound=st.integers(0, 10),
    idle_after=st.none() | st.integers(1, 30),
    second=st.none() | st.integers(1, 3),
    per_part=st.booleans(),
    workers=st.integers(1, 3),
)
def test_epochs_and_late_records_are_the_models(
    script: list[Step], bound: int, idle_after: int | None, second: int | None, per_part: bool, workers: int
) -> None:
    options: dict[str, Any] = {"per_part": per_part}
    if idle_after is not None:
        options.update(idle_after=timedelta(seconds=idle_after), second=second)
    flow = Flow(script, bound, **options)
    flow.run(workers)
    flow.check()
    places = [at % workers for at in range(len(PARTS))]
    model = Model(flow, places, idle_after, second)
    assert sorted(flow.late) == sorted(model.late)
    assert flow.frontiers[:-1] == model.frontiers


@given(
    script=steps,
    bound=st.integers(0, 10),
    idle_after=st.integers(1, 30),
    per_part=st.booleans(),
    workers=st.integers(1, 3),
    ticks=st.lists(st.integers(0, 20), min_size=3, max_size=20),
)
def test_every_window_closes_in_time(
    script: list[Step], bound: int, idle_after: int, per_part: bool, workers: int, ticks: list[int]
) -> None:
    rest = [Step(gap, None, ()) for gap in [*ticks, idle_after + bound + SIZE, 1, 1]]
    flow = Flow([*script, *rest], bound, per_part=per_part, idle_after=timedelta(seconds=idle_after), second=1)
    flow.run(workers)
    flow.check()
    assert flow.closed[-1] == flow.closed[-2] == len(flow.results.values)
    assert all(it.value.timing is Timing.FINAL for it in flow.results)


@given(script=steps, bound=st.integers(0, 10), per_part=st.booleans(), workers=st.integers(1, 3), gaps=st.randoms())
def test_tick_times_change_nothing_without_idle_after(
    script: list[Step], bound: int, per_part: bool, workers: int, gaps: Any
) -> None:
    found = []
    for _ in range(2):
        flow = Flow(script, bound, per_part=per_part)
        flow.run(workers)
        found.append((flow.on_time, flow.late, list(flow.results), flow.closed))
        script = [step._replace(gap=gaps.randrange(10**6)) for step in script]
    assert found[0] == found[1]


@given(
    script=steps,
    bound=st.integers(0, 10),
    idle_after=st.integers(1, 30),
    per_part=st.booleans(),
    every=st.none() | st.integers(1, 20),
    plan=st.lists(st.sampled_from(["", "", "restart", "rescale"]), max_size=25),
    workers=st.lists(st.integers(1, 4), min_size=1, max_size=5),
)
def test_restarts_lose_no_record_and_repeat_no_window(
    script: list[Step],
    bound: int,
    idle_after: int,
    per_part: bool,
    every: int | None,
    plan: list[str],
    workers: list[int],
) -> None:
    options = {"per_part": per_part, "idle_after": timedelta(seconds=idle_after), "second": 1, "every": every}
    flow, store = Flow(script, bound, **options), Store()
    program = compiled(flow.build)

    def between(index: int, run: DrivenRun) -> DrivenRun:
        action, count = plan[index] if index < len(plan) else "", workers[index % len(workers)]
        if action == "rescale":
            run.rescale(count)
        elif action == "restart":
            store.commit(run, program)
            run.close()
            return store.restore(program, count)
        return run

    flow.run(workers[0], between)
    flow.check()


def closed_after(script: list[Step], **options: Any) -> list[int]:
    """Return how many windows were closed after each tick, in windows of 10 with a bound of 0."""
    flow = Flow(script, 0, **{"idle_after": timedelta(seconds=30), "second": 1, **options})
    flow.run(1)
    return flow.closed


def test_a_backlog_and_slow_ticks_are_no_silence() -> None:
    busy = [Step(1000, part, [10 * at + 1]) for at in range(4) for part in range(3)]
    assert Flow(busy, 0).options == {}
    waiting = closed_after([*busy, Step(1000, None, ())], per_part=False)
    assert waiting == closed_after([*busy, Step(0, None, ())], per_part=False)
    assert waiting[-1] == 3, "the window of the last record waits: its silence has just begun"
    assert closed_after([*busy, Step(1000, None, ()), Step(40, None, ())], per_part=False)[-1] == 3
    assert closed_after([*busy, *[Step(20, None, ())] * 4], per_part=False)[-1] == 4


@given(per_part=st.booleans(), gap=st.integers(1, 10**6))
def test_downtime_is_no_silence(per_part: bool, gap: int) -> None:
    script = [Step(1, 0, [1]), Step(1, 1, [1]), Step(1, 2, [1]), *[Step(gap, None, ())] * 3]
    options = {"per_part": per_part, "idle_after": timedelta(seconds=1), "second": 1}
    flow, store = Flow(script, 0, **options), Store()
    program = compiled(flow.build)

    def restarted(_index: int, run: DrivenRun) -> DrivenRun:
        store.commit(run, program)
        run.close()
        return store.restore(program, 1)

    flow.run(1, restarted)
    assert flow.closed[-1] == 0


def test_silence_before_a_stop_counts_after_it() -> None:
    script = [Step(1, part, [1]) for part in range(3)] + [Step(20, None, ())] * 9
    for per_part in (False, True):
        flow, store = Flow(script, 0, per_part=per_part, idle_after=timedelta(seconds=60), second=1), Store()
        program = compiled(flow.build)

        def between(index: int, run: DrivenRun, store: Store = store, program: Any = program) -> DrivenRun:
            if index != 5:
                return run
            store.commit(run, program)
            run.close()
            return store.restore(program, 1)

        flow.run(1, between)
        assert flow.closed[-1] == 1


def test_a_filter_that_drops_all_is_not_silent() -> None:
    """One worker's source is busy, and an operator drops its records; the other's is silent."""
    script = [Step(0, 0, [1]), Step(0, 1, [1])] + [Step(10, 0, [n]) for n in range(2, 50)]
    flow = Flow(script, 0, per_part=False, idle_after=timedelta(seconds=30), second=1)
    epochs: list[Any] = []

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", flow.source)
        kept = stream.filter("filter", lambda value: value[1] < 2)
        on_time, _ = kept.generate_epochs("epochs", limit_out_of_orderness(0), **flow.options)
        on_time.key_distribute("all", lambda msg: "all").inspect_frontier("time", lambda at, _: epochs.append(at))

    run, now = Store().restore(compiled(build), 2), 0
    for step in script:
        now += step.gap
        flow.clock.set(now)
        run.ticks.clock = flow.clock
        run.tick()
    run.close()
    assert max(epochs, default=0) <= 1


def test_a_silent_source_follows_another_that_it_meets() -> None:
    """Two generators meet in a union; a third one, which meets neither, is left alone."""
    quick = Polls({"x": [[10 * n] for n in range(20)]}, keyed=False)
    slow = Polls({"y": [[5], *[[]] * 19]}, keyed=False)
    alone = Polls({"z": [[5], *[[]] * 19]}, keyed=False)
    epochs: dict[str, list[Any]] = {"both": [], "alone": []}

    def build(provider: Any) -> None:
        def timed(name: str, source: Polls, **options: Any) -> Any:
            stream = provider.new_stream().source(name, StatefulSource(source))
            return stream.generate_epochs(f"{name} epochs", limit_out_of_orderness(0), **options)[0]

        idle = {"idle_after": timedelta(seconds=3)}
        both = timed("quick", quick).union(timed("slow", slow, **idle))
        both.inspect_frontier("both", lambda at, _: epochs["both"].append(at))
        timed("alone", alone, **idle).inspect_frontier("time", lambda at, _: epochs["alone"].append(at))

    run, clock = Store().restore(compiled(build), 1), HandClock()
    for second in range(19):
        clock.set(second)
        run.ticks.clock = clock
        run.tick()
    run.close()
    assert epochs["both"][-1] == 170, "one tick behind: the lift follows the epochs of the tick before"
    assert epochs["alone"] == [5]


SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("epoch", "second", "expected"),
    [
        (100, 1000, 6100),
        (100, 0.5, 103),
        (100.0, 0.25, 101.5),
        (Decimal("1.5"), 2, Decimal("13.5")),
        (Fraction(1, 3), Fraction(1, 2), Fraction(10, 3)),
        (datetime(2024, 5, 1, tzinfo=UTC), None, datetime(2024, 5, 1, 0, 0, 6, tzinfo=UTC)),
        (timedelta(hours=1), None, timedelta(hours=1, seconds=6)),
        (date(2024, 5, 1), None, date(2024, 5, 1)),
        (100, None, None),
        ("text", 1, None),
        ((1, 2), 1, None),
        (datetime.max.replace(tzinfo=UTC), None, None),
    ],
)
def test_a_second_by_the_type_of_epochs(epoch: Any, second: Any, expected: Any) -> None:
    assert moved_on(epoch, 2 * SECOND, 8 * SECOND, second) == expected
    assert type(moved_on(epoch, 2 * SECOND, 8 * SECOND, second)) is type(expected)


@given(
    silences=st.lists(st.integers(0, 10**9), min_size=2).map(sorted),
    epoch=st.integers(0, 9) | st.dates(date(2000, 1, 1), date(2030, 1, 1)),
    second=st.fractions(0, 10) | st.integers(1, 1000),
)
def test_small_steps_add_up(silences: list[int], epoch: Any, second: Any) -> None:
    at = [timedelta(microseconds=100 * silence) for silence in silences]
    whole = moved_on(epoch, at[0], at[-1], second)
    for before, after in pairwise(at):
        epoch = moved_on(epoch, before, after, second)
    assert epoch == whole


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"idle_after": "5x"}, "operator 'e' idle_after must be a time above zero"),
        ({"idle_after": timedelta(0)}, "operator 'e' idle_after must be a time above zero"),
        (
            {"idle_after": SECOND, "second": 0},
            "operator 'e' second must be a positive number or timedelta",
        ),
        ({"idle_after": SECOND, "second": SECOND}, "operator 'e' second must be a positive number"),
        ({"second": 1}, "operator 'e' has a second= without idle_after=, which alone needs it"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    def build(provider: Any) -> None:
        provider.new_stream().source("s", SingleIteratorSource([1])).generate_epochs(
            "e", limit_out_of_orderness(1), **options
        )

    with pytest.raises(GraphError, match=re.escape(message)):
        compiled(build)
