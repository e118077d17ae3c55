"""The choice of parts that move: seldom, never back, only where it helps, against a naive model of the loads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from malflow import StreamProvider
from malflow.engine.parts.balance import Balance, Choice, Load, Unit, movable_sources, units_of
from malflow.engine.plan import Program
from malflow.sources import SingleIteratorSource, StatefulSource
from malflow.testing import ScriptedSource
from tests.kit.driving import compiled

SECOND = 5.0
"""The time between two looks."""


class World:
    """Workers with parts: each part has a rate, and each record costs as much time as any other."""

    def __init__(self, workers: int, processes: int, places: Sequence[int], far: Sequence[float]) -> None:
        self.lanes = [worker * processes // workers for worker in range(workers)]
        self.places = [place % workers for place in places]
        self.far = [far[worker % len(far)] for worker in range(workers)]
        self.rates = [0.0] * len(places)

    def near(self, worker: int) -> float:
        """Return the load of a worker by its parts."""
        return sum(rate for rate, place in zip(self.rates, self.places, strict=True) if place == worker) / 100

    def loads(self) -> list[Load]:
        """Return the loads of workers."""
        near = [self.near(worker) for worker in range(len(self.lanes))]
        return [Load(it + far, it) for it, far in zip(near, self.far, strict=True)]

    def busiest(self) -> float:
        """Return the load of the busiest process."""
        return max(self.by_lane().values())

    def by_lane(self) -> dict[int, float]:
        """Return the load of each process."""
        found: dict[int, float] = defaultdict(float)
        for lane, load in zip(self.lanes, self.loads(), strict=True):
            found[lane] += load.busy
        return found

    def units(self) -> list[Unit]:
        """Return all parts."""
        return [
            Unit("s", part, {"s": [part]}, place, rate)
            for part, (place, rate) in enumerate(zip(self.places, self.rates, strict=True))
        ]

    def rates_of_workers(self) -> dict[int, float]:
        """Return the rate of each worker."""
        return {worker: 100 * self.near(worker) for worker in range(len(self.lanes))}

    def best(self) -> float | None:
        """Return the least load of the busiest and the idlest process after one move between them, by trying all."""
        before, found = self.by_lane(), [float("inf")]
        top = max(before, key=lambda lane: (before[lane], -lane))
        bottom = min(before, key=lambda lane: (before[lane], lane))
        for part, place in enumerate(self.places):
            if self.lanes[place] == top != bottom:
                self.places[part] = self.lanes.index(bottom)
                after = self.by_lane()
                found.append(max(after[top], after[bottom]))
                self.places[part] = place
        return min(found)


worlds = st.builds(
    World,
    st.integers(2, 6),
    st.integers(2, 6),
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
    st.lists(st.floats(0, 0.4), min_size=1, max_size=3),
)


@given(worlds, st.lists(st.tuples(st.integers(1, 40), st.lists(st.floats(0, 60), min_size=8, max_size=8)), max_size=8))
def test_a_history_of_rates(world: World, history: list[tuple[int, list[float]]]) -> None:
    """At most one move a minute; no part returns to a worker; each move makes the busiest process less busy."""
    balance, now = Balance(), 0.0
    moves: list[tuple[float, Choice]] = []
    for looks, rates in history:
        world.rates = rates[: len(world.places)]
        for _ in range(looks):
            now += SECOND
            if not balance.is_uneven(now, world.loads(), world.lanes):
                continue
            choice = balance.choose(world.loads(), world.lanes, world.units(), world.rates_of_workers())
            if choice is None:
                continue
            before = world.busiest()
            top, bottom = max(world.by_lane().values()), min(world.by_lane().values())
            assert (choice.busy, choice.idle) == (top, bottom)
            world.places[choice.unit.part] = choice.after
            both = {world.lanes[choice.unit.worker], world.lanes[choice.after]}
            assert max(world.by_lane()[lane] for lane in both) < 0.91 * before
            assert world.busiest() <= before
            balance.note_move(choice, now)
            moves.append((now, choice))
    assert all(later - earlier >= 60 for (earlier, _), (later, _) in pairwise(moves))
    left = defaultdict(set)
    for _, choice in moves:
        left[choice.unit.part].add(choice.unit.worker)
        assert choice.after not in left[choice.unit.part]


@given(worlds, st.lists(st.floats(0, 60), min_size=8, max_size=8))
def test_a_choice_is_the_best_of_all(world: World, rates: list[float]) -> None:
    world.rates = rates[: len(world.places)]
    before, best = world.busiest(), world.best()
    idle = min(world.by_lane().values())
    choice = Balance().choose(world.loads(), world.lanes, world.units(), world.rates_of_workers())
    helps = best is not None and best < 0.89 * before
    if before >= 0.501 and idle <= 0.499 * before and helps:
        assert choice is not None
        assert choice.unit.rate > 0
    if before < 0.499 or idle > 0.501 * before or (best is not None and best > 0.91 * before):
        assert choice is None
    if choice is not None:
        lanes = {world.lanes[choice.unit.worker], world.lanes[choice.after]}
        world.places[choice.unit.part] = choice.after
        after = world.by_lane()
        assert best is not None
        assert max(after[lane] for lane in lanes) <= best + 1e-9


def test_a_busy_worker_must_have_been_busy_for_long() -> None:
    world = World(2, 2, [0, 0, 1], [0.0])
    balance = Balance()
    world.rates = [50, 50, 1]
    due = [now for now in range(0, 100, 5) if balance.is_uneven(now, world.loads(), world.lanes)]
    assert due == [*range(30, 100, 5)]
    world.rates = [5, 5, 1]
    assert not balance.is_uneven(105, world.loads(), world.lanes), "nobody waits for it"
    world.rates = [50, 50, 1]
    assert [now for now in range(110, 150, 5) if balance.is_uneven(now, world.loads(), world.lanes)] == [140, 145]


def test_workers_that_take_turns_have_no_moves() -> None:
    world = World(3, 1, [0, 0, 0], [0.0])
    world.rates = [50, 50, 50]
    balance = Balance()
    assert not any(balance.is_uneven(now, world.loads(), world.lanes) for now in range(0, 300, 5))


def test_a_part_with_too_much_state_is_not_chosen_again() -> None:
    world = World(2, 2, [0, 0, 0], [0.0])
    world.rates = [30, 40, 20]
    balance = Balance()
    chosen = []
    while (choice := balance.choose(world.loads(), world.lanes, world.units(), world.rates_of_workers())) is not None:
        balance.note_kept(choice)
        chosen.append(choice.unit.part)
    assert sorted(chosen) == [0, 1, 2]


class Unkeyed(ScriptedSource):
    """A source with records without keys, which may be read in order."""

    def __init__(self, *, in_order: bool = False) -> None:
        super().__init__({})
        self.keyed = False
        self.in_order = in_order


def program() -> Program:
    """Return a program with sources of all kinds."""

    def build(provider: StreamProvider) -> None:
        keyed, too = (
            provider.new_stream().source(name, StatefulSource(ScriptedSource({}))) for name in ("keyed", "keyed too")
        )
        keyed.union(too, name="both")
        provider.new_stream().source("unkeyed", StatefulSource(Unkeyed()))
        provider.new_stream().source("in order", StatefulSource(Unkeyed(in_order=True)))
        provider.new_stream().source("without positions", SingleIteratorSource([]))
        hashed = provider.new_stream().source("hashed", StatefulSource(ScriptedSource({})))
        other = provider.new_stream().source("other", StatefulSource(Unkeyed()))
        both = hashed.union(other.key_distribute("key", lambda msg: msg.value))
        both.stateful_map("sum", lambda _key, value, _state: (value, value))

    return compiled(build)


def test_parts_that_may_move() -> None:
    flow = program()
    assert movable_sources(flow) == {"keyed", "keyed too", "unkeyed", "other"}
    parts = {
        "keyed": [["x", "y", "z"], []],
        "keyed too": [["x", "z"], ["w"]],
        "unkeyed": [["x"], []],
        "in order": [["i"], []],
        "hashed": [["y"], []],
    }
    ended = {"keyed": {"z": 0}, "keyed too": {"z": 0}}
    rates = {"keyed": {"x": 2.0}, "keyed too": {"x": 3.0, "w": 1.0}}
    found = {(it.name, it.part, it.worker): it.rate for it in units_of(flow, parts, [0, 1], ended, rates)}
    assert found == {
        ("keyed", "x", 0): 5.0,
        ("keyed", "y", 0): 0.0,
        ("keyed", "w", 1): 1.0,
        ("unkeyed", "x", 0): 0.0,
    }, "y of another source, whose keys are hashed, stays"
