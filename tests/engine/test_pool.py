"""Parts that are handed out while a run reads: each once, the largest first, none while a worker that idles is left."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import OperatorError, StreamProvider, agg, limit_out_of_orderness
from malflow.engine.parts.dealing import deal
from malflow.engine.parts.places import held_parts, waiting_parts, with_given
from malflow.engine.parts.pool import IN_HAND, PartPool, on_demand_sources
from malflow.engine.plan import PartAssignment, Program
from malflow.runtime.progress.time_table import explain
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource, Timed
from malflow.testing.driven import DrivenRun
from malflow.windows import tumbling
from tests.kit.backends import in_memory, kept_states
from tests.kit.bounded import BoundedSource
from tests.kit.driving import compiled, finish


def program_of(*sources: Any) -> Program:
    """Return a program that reads sources with the names a, b and so on; their streams meet."""

    def build(provider: StreamProvider) -> None:
        streams = [
            provider.new_stream().source(name, StatefulSource(it)) for name, it in zip("abc", sources, strict=False)
        ]
        if len(streams) > 1:
            streams[0].union(*streams[1:], name="all")
        for name, stream in zip("abc", streams, strict=False):
            stream.stateful_map(f"count {name}", lambda _key, value, n: (value, n + 1), int)

    return compiled(build)


class Reading:
    """Workers that each read the same amount in a tick, part by part; a model of a run's time.

    Args:
        sizes: the size of each part.
        workers: the number of workers.
        amount: what a worker reads in a tick.
        knows_sizes: whether the source tells the sizes.
    """

    def __init__(self, sizes: Sequence[int], workers: int, amount: int, *, knows_sizes: bool = True) -> None:
        script = {part: range(size) for part, size in enumerate(sizes)}
        self.program = program_of(BoundedSource(script, knows_sizes=knows_sizes))
        self.listed = {"a": [*script]}
        self.parts = deal(self.program, self.listed, workers)
        self.pool = PartPool(self.program, self.listed, self.parts)
        self.left = dict(enumerate(sizes))
        self.hands: list[list[int]] = [list(them) for them in self.parts["a"]]
        self.amount = amount
        self.firsts: list[int] = []
        self.is_first = True

    def tick(self) -> None:
        """Take a tick, and check what was handed out."""
        was_waiting = set(waiting_parts(self.listed, self.parts).get("a", ()))
        given = self.pool.take()
        self.parts = with_given(self.parts, given)
        for hand, new in zip(self.hands, given.get("a", [[]] * len(self.hands)), strict=True):
            assert was_waiting.issuperset(new)
            was_waiting.difference_update(new)
            self.firsts += new if self.is_first else []
            hand.extend(new)
        self.is_first = False
        assert was_waiting == set(waiting_parts(self.listed, self.parts).get("a", ()))
        assert ("a" in self.pool.waiting) == bool(was_waiting)
        if was_waiting:
            assert all(self.hands), "no worker idles while a part waits"
        for hand in self.hands:
            self._read(hand)
        self.pool.note({("a", worker): len(hand) for worker, hand in enumerate(self.hands)})

    def _read(self, hand: list[int]) -> None:
        left = self.amount
        for part in hand:
            read = min(left, self.left[part])
            self.left[part] -= read
            left -= read
        hand[:] = [part for part in hand if self.left[part] > 0]

    def ticks(self) -> int:
        """Read everything; return the number of ticks."""
        taken = 0
        while self.pool.waiting or any(self.hands):
            self.tick()
            taken += 1
        return taken


@given(st.lists(st.integers(0, 400), min_size=1, max_size=80), st.integers(1, 5), st.booleans())
def test_each_part_is_handed_out_once(sizes: list[int], workers: int, knows_sizes: bool) -> None:
    reading = Reading(sizes, workers, 20, knows_sizes=knows_sizes)
    assert bool(reading.pool.waiting) == (workers > 1 and len(sizes) > workers * IN_HAND)
    reading.ticks()
    assert sorted(part for them in reading.parts["a"] for part in them) == [*range(len(sizes))]
    firsts = sorted(sizes[part] for part in reading.firsts)
    assert firsts == sorted(sorted(sizes, reverse=True)[: len(firsts)] if knows_sizes else sizes[: len(firsts)])


@pytest.mark.parametrize("seed", range(2))
def test_a_thousand_uneven_parts_end_within_a_tenth_of_the_best(seed: int) -> None:
    drawn = random.Random(seed)  # noqa: S311 - for a test
    sizes = [int(1_000 * drawn.paretovariate(1.3)) for _ in range(1_000)]
    amount = sum(sizes) // 4 // 200
    best = max(sum(sizes) / 4, *sizes) / amount
    assert Reading(sizes, 4, amount).ticks() <= 1.1 * best


def test_a_part_as_large_as_a_share_is_read_alone() -> None:
    reading = Reading([300, *[10] * 90], 4, 10)
    assert reading.ticks() <= 33


def test_small_parts_take_few_ticks() -> None:
    assert Reading([1] * 1_000, 4, 1_000).ticks() <= 12


def test_equal_parts_of_keyed_sources_are_handed_out_together() -> None:
    many = {part: range(part) for part in range(30)}
    some = {float(part): [0] for part in range(10, 40)}
    program = program_of(BoundedSource(many), BoundedSource(some), ScriptedSource({5: [0], 6.0: [0]}))
    listed = {"a": [*many], "b": [*some], "c": [5, 6.0]}
    parts = deal(program, listed, 2)
    assert held_parts(parts)["a"] == {5: parts["c"].index([5]), 6: parts["c"].index([6.0])}, "with the dealt ones"
    pool = PartPool(program, listed, parts)
    while pool.waiting:
        parts = with_given(parts, pool.take())
        pool.note({})
    places = held_parts(parts)
    assert {name: len(them) for name, them in places.items()} == {"a": 30, "b": 30, "c": 2}
    assert all(places["a"][part] == places["b"][part] for part in range(10, 30))


def timed(**how: Any) -> Any:
    """Return a function that builds a program with one time for each part, or for all."""

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("a", StatefulSource(BoundedSource({})))
        stream.generate_epochs("epochs", limit_out_of_orderness(0), **how)

    return build


@pytest.mark.parametrize(
    ("how", "assignment", "expected"),
    [
        ({}, "auto", False),
        ({}, "dynamic", True),
        ({}, "static", False),
        ({"per_part": False}, "dynamic", False),
    ],
)
def test_parts_with_time_are_handed_out_only_on_request(
    how: dict[str, Any], assignment: PartAssignment, expected: bool
) -> None:
    program = replace(compiled(timed(**how)), part_assignment=assignment)
    assert on_demand_sources(program) == ({"a"} if expected else set())


@pytest.mark.parametrize("name", ["in_order", "discover_every", "in_one_process"])
def test_parts_that_depend_on_each_other_are_dealt(name: str) -> None:
    source = BoundedSource({})
    setattr(source, name, True)
    assert not on_demand_sources(program_of(source))
    assert on_demand_sources(program_of(BoundedSource({}))) == {"a"}
    assert not on_demand_sources(program_of(ScriptedSource({})))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (lambda parts: dict.fromkeys(parts, 1.5), "part_sizes() must return whole numbers; got 1.5 for part"),
        (lambda parts: dict.fromkeys(parts, -1), "part_sizes() must return whole numbers; got -1 for part"),
        (lambda parts: 1 / 0, "ZeroDivisionError"),
        (lambda parts: None, "AttributeError"),
    ],
)
def test_sizes_that_are_none_name_the_source(sizes: Any, message: str) -> None:
    source = BoundedSource({part: [0] for part in range(9)})
    source.part_sizes = sizes  # type: ignore[method-assign]
    program = program_of(source)
    listed = {"a": [*range(9)]}
    with pytest.raises(OperatorError, match="'a'") as caught:
        PartPool(program, listed, deal(program, listed, 2)).take()
    assert message in str(caught.value)


def test_unread_parts_hold_the_time_back_on_every_worker() -> None:
    script = {part: [Timed(0, 10 * at) for at in range(2)] for part in range(9)}

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("a", StatefulSource(BoundedSource(script)))
        stream.generate_epochs("epochs", limit_out_of_orderness(0))

    program = replace(compiled(build), part_assignment="dynamic")
    with DrivenRun(program, parallelism=2) as run:
        run.open()
        seen = []
        while not run.is_finished:
            run.tick()
            epochs = {worker: it["epoch"] for worker, it in run.epochs()["epochs"].items()}
            seen.append((run.ticks.hands_out, epochs))
    assert sum(waits for waits, _ in seen) > 1
    assert all(set(epochs.values()) == {None} for waits, epochs in seen if waits)
    assert set(seen[-1][1].values()) == {10}


def test_a_part_that_waits_for_the_one_before_is_not_silent() -> None:
    """A worker reads its first part to the end, for longer than a part may be silent, before it asks the second."""
    script = {part: [Timed(at, at) for at in range(30)] for part in range(9)}

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("a", StatefulSource(BoundedSource(script, knows_sizes=False)))
        stream.generate_epochs("epochs", limit_out_of_orderness(0), idle_after=timedelta(seconds=1), second=1)

    with DrivenRun(replace(compiled(build), part_assignment="dynamic"), parallelism=2) as run:
        run.ticks._pacing.note = lambda *_: None  # type: ignore[method-assign]
        run.ticks._pacing.limit = 10
        run.open()
        while not run.is_finished:
            run.tick()
            run.ticks.clock.skip(timedelta(seconds=5))
    assert run.ticks.counts["a"] == 270
    assert run.ticks.counts["epochs/late"] == 0


PARTS = 14
LENGTHS = st.lists(st.integers(0, 6), min_size=PARTS, max_size=PARTS)
STEPS = st.lists(
    st.tuples(st.sampled_from(["tick", "tick", "tick", "snapshot", "rescale", "crash"]), st.integers(1, 4)), max_size=20
)


class History:
    """A run of counts by part, with snapshots, rescales and crashes; every state must equal a dict's.

    Args:
        lengths: the number of records of each part.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.script = {part: [it for row in range(rows) for it in (row, PAUSE)] for part, rows in enumerate(lengths)}
        self.store: FsspecBackend = in_memory()
        self.begun: set[int] = set()
        self.run = self._start(2)

    def _start(self, workers: int) -> DrivenRun:
        source = BoundedSource(self.script)
        run = DrivenRun(program_of(source), parallelism=workers, persistence=self.store)
        run.resume()
        return run

    def step(self, what: str, number: int) -> None:
        """Take a step, and check that each part is on one worker or waits."""
        if what == "tick" and not self.run.is_finished:
            self.run.tick()
        elif what == "snapshot":
            self.snapshot()
        elif what == "rescale":
            self.run.rescale(number)
        elif what == "crash":
            self.run.close()
            self.run = self._start(number)
        counts = Counter(part for them in self.run.parts["a"] for part in them)
        counts.update(waiting_parts(self.run.listed, self.run.parts).get("a", ()))
        assert counts == Counter([*self.script]), "each part is on one worker, or waits"
        for source in self.run.sources:
            assert set(source.state) | set(source.live_parts) <= set(self.run.parts["a"][source.context.worker_id])

    def snapshot(self) -> None:
        made = self.run.snapshots.take()
        assert made is not None
        made.result()
        self.run.snapshots.check()

    def end(self) -> Mapping[Any, Any]:
        """Read to the end; return the counts by part."""
        while not self.run.is_finished:
            self.step("tick", 0)
        self.snapshot()
        self.run.close()
        return kept_states(self.store, "count a")


@given(LENGTHS, STEPS)
def test_each_part_is_read_once_whatever_happens(lengths: list[int], steps: list[tuple[str, int]]) -> None:
    history = History(lengths)
    for what, number in steps:
        history.step(what, number)
    assert history.end() == {part: rows for part, rows in enumerate(lengths) if rows}


def test_a_rescale_keeps_the_parts_that_wait() -> None:
    history = History([3] * PARTS)
    history.step("tick", 0)
    before = waiting_parts(history.run.listed, history.run.parts)["a"]
    history.step("rescale", 3)
    assert waiting_parts(history.run.listed, history.run.parts)["a"] == before
    assert history.end() == dict.fromkeys(range(PARTS), 3)


def test_a_part_that_vanishes_while_it_waits_is_not_read() -> None:
    history = History([3] * PARTS)
    history.step("tick", 0)
    history.snapshot()
    gone = waiting_parts(history.run.listed, history.run.parts)["a"][:2]
    for part in gone:
        del history.script[part]
    history.step("crash", 3)
    assert history.end() == {part: 3 for part in range(PARTS) if part not in gone}


def test_a_part_that_was_being_read_stays_with_its_worker() -> None:
    history = History([5] * PARTS)
    history.step("tick", 0)
    history.step("tick", 0)
    history.snapshot()
    before = held_parts(history.run.parts)["a"]
    history.step("crash", 2)
    assert held_parts(history.run.parts)["a"] == before
    history.run.close()


def test_no_parts_at_all() -> None:
    program = program_of(BoundedSource({}))
    with DrivenRun(program, parallelism=3) as run:
        run.open()
        assert run.is_finished


def test_progress_knows_the_size_of_the_unread_parts() -> None:
    program = program_of(BoundedSource({part: [0] * part for part in range(1, 12)}))
    listed = {"a": [*range(1, 12)]}
    parts = deal(program, listed, 2)
    pool = PartPool(program, listed, parts)
    assert pool.size("a") == 66
    pool.take()
    assert pool.size("a") == 66 - 11 - 10 - 9 - 8
    unknown = program_of(BoundedSource({part: [0] for part in range(9)}, knows_sizes=False))
    assert PartPool(unknown, {"a": [*range(9)]}, {"a": [[], []]}).size("a") is None


@given(st.lists(st.integers(0, 400), min_size=2, max_size=60), st.integers(2, 5))
def test_parts_that_are_dealt_at_once_are_as_large_on_each_worker(sizes: list[int], workers: int) -> None:
    source = BoundedSource({part: range(size) for part, size in enumerate(sizes)})
    program = replace(program_of(source), part_assignment="static")
    listed = {"a": [*range(len(sizes))]}
    loads = [sum(sizes[part] for part in them) for them in deal(program, listed, workers)["a"]]
    assert max(loads) <= sum(sizes) / workers + max(sizes)
    held = held_parts(deal(program, listed, workers))
    more = {"a": [*listed["a"], len(sizes)]}
    source._scripts[len(sizes)] = ()
    after = deal(program, more, workers, held, levels=False)
    assert {part: at for part, at in held_parts(after)["a"].items() if part in held["a"]} == held["a"]


def test_parts_that_cannot_be_compared() -> None:
    parts = [1, "a", (2,), b"c", 2.5, frozenset({3}), datetime(2026, 1, 1, tzinfo=UTC), ("a", 1), 2**70]
    program = program_of(BoundedSource({part: [0] * 3 for part in parts}))
    with DrivenRun(program, parallelism=2) as run:
        run.open()
        while not run.is_finished:
            run.tick()
        assert run.ticks.counts["a"] == 3 * len(parts)


def test_a_waiting_part_that_cannot_be_opened_names_source_and_part() -> None:
    class Closed(BoundedSource):
        """A source with a part that can't be opened."""

        def build_part(self, part: Any, state: int | None) -> Any:
            if part == 11:
                raise PermissionError("it is closed")
            return super().build_part(part, state)

    program = program_of(Closed({part: [0] for part in range(12)}, knows_sizes=False))
    run = DrivenRun(program, parallelism=2)
    run.open()
    with pytest.raises(OperatorError, match=r"'a' .*part 11.*it is closed"):
        finish(run)


def test_an_explanation_names_the_unread_parts() -> None:
    script = {part: [Timed(0, 10 * at) for at in range(9)] for part in range(9)}

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("a", StatefulSource(BoundedSource(script)))
        on_time, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        on_time.window(tumbling(10)).aggregate("windows", agg.count())

    program = replace(compiled(build), part_assignment="dynamic")
    with DrivenRun(program, parallelism=2) as run:
        run.open()
        texts = []
        while run.ticks.hands_out or not texts:
            run.tick()
            texts += map(str, explain(program, run.explain(), {}, datetime.now(UTC)))
    assert any("held back by source 'a', part <not begun yet> (no epoch yet, at 'epochs')" in it for it in texts)
