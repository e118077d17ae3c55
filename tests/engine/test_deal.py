"""How the parts of sources are dealt to workers: evenly, with few moves, each part on one worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import StreamProvider, rendezvous_select
from malflow.engine.parts.dealing import deal, redeal, with_listed, with_new
from malflow.engine.parts.places import PartPlaces, held_parts
from malflow.engine.plan import PartGroups, Program
from malflow.engine.state_specs import DEALT
from malflow.engine.states.loading import redealt
from malflow.engine.states.rescale import reroute
from malflow.operators.epochs.frontiers import Floors
from malflow.partitioners import PLACEMENT, part_select
from malflow.snapshot import MsgpackCodec
from malflow.snapshot.codecs.contract import PickleCodec
from malflow.sources import StatefulSource
from malflow.testing import ScriptedSource
from tests.kit.driving import compiled


class Unkeyed(ScriptedSource):
    """A source with records without keys."""

    def __init__(self) -> None:
        super().__init__({})
        self.keyed = False


def program_of(
    keyed: Sequence[str] = (),
    unkeyed: Sequence[str] = (),
    hashed: Sequence[str] = (),
    meeting: Sequence[str] = (),
) -> Program:
    """Return a program with sources of these names; the streams of some of them meet."""

    def build(provider: StreamProvider) -> None:
        for name in keyed:
            provider.new_stream().source(name, StatefulSource(ScriptedSource({})))
        met = [provider.new_stream().source(name, StatefulSource(ScriptedSource({}))) for name in meeting]
        if met:
            both = met[0].map("same", str).union(*met[1:], name="both")
            both.stateful_map("sum", lambda _key, value, _state: (value, value))
        for name in unkeyed:
            provider.new_stream().source(name, StatefulSource(Unkeyed()))
        for name in hashed:
            stream = provider.new_stream().source(name, StatefulSource(ScriptedSource({})))
            other = provider.new_stream().source(f"{name} too", StatefulSource(Unkeyed()))
            both = stream.union(other.key_distribute(f"key {name}", lambda msg: msg.value))
            both.stateful_map(f"sum {name}", lambda _key, value, _state: (value, value))

    return compiled(build)


PROGRAM = program_of(keyed=["a", "b"], unkeyed=["c"])
parts_of_sources = st.fixed_dictionaries(
    {
        "a": st.lists(st.integers(0, 9), unique=True, max_size=4),
        "b": st.lists(st.integers(0, 9), unique=True, max_size=3),
        "c": st.lists(st.integers(0, 9), unique=True, max_size=3),
    }
)


def loads_of(parts: Mapping[str, Sequence[Sequence[Any]]], ended: Mapping[str, Any] | None = None) -> list[int]:
    """Return how many live parts each worker has."""
    workers = max(map(len, parts.values()))
    gone = ended or {}
    return [
        sum(part not in gone.get(name, ()) for name, by_worker in parts.items() for part in by_worker[worker])
        for worker in range(workers)
    ]


def fewest_moves(held: Sequence[int], others: int, workers: int) -> int:
    """Return the least number of parts with workers that must move, found by trying every even deal.

    Args:
        held: the workers of the parts that have one; others from `workers` on.
        others: the number of parts that have none.
        workers: the number of workers.
    """
    best = len(held)
    for places in product(range(workers), repeat=len(held)):
        counts = Counter(places)
        rest, least = others, [counts[worker] for worker in range(workers)]
        while rest:
            least[least.index(min(least))] += 1
            rest -= 1
        if max(least) - min(least) <= 1:
            best = min(best, sum(was != now for was, now in zip(held, places, strict=True)))
    return best


@given(parts_of_sources, st.integers(1, 6))
def test_each_part_has_one_worker_and_none_has_two_more_than_another(listed: Any, workers: int) -> None:
    dealt = deal(PROGRAM, listed, workers)
    assert {name: sorted(part for them in by for part in them) for name, by in dealt.items()} == {
        name: sorted(parts) for name, parts in listed.items()
    }
    for name, by_worker in dealt.items():
        for them in by_worker:
            assert them == [part for part in listed[name] if part in them], "in the order listed"
    loads = loads_of(dealt)
    assert max(loads) - min(loads) <= 1


@given(parts_of_sources, st.lists(st.integers(0, 4), min_size=10, max_size=10), st.integers(1, 3))
def test_as_few_parts_move_as_balance_needs(listed: Any, were: list[int], workers: int) -> None:
    every = [(name, part) for name, parts in listed.items() for part in parts][:6]
    names = {name: [part for other, part in every if other == name] for name in listed}
    held: dict[str, dict[Any, int]] = {name: {} for name in names}
    for (name, part), worker in zip(every, were, strict=False):
        if worker < 4:  # the others have no worker yet
            held[name][part] = worker
    after = held_parts(deal(PROGRAM, names, workers, held))
    moved = sum(after[name][part] != worker for name, them in held.items() for part, worker in them.items())
    had = [worker for them in held.values() for worker in them.values()]
    assert moved == fewest_moves(had, len(every) - len(had), workers)


@given(parts_of_sources, st.integers(1, 5), st.data())
def test_nothing_moves_at_the_same_number_of_workers(listed: Any, workers: int, data: st.DataObject) -> None:
    first = deal(PROGRAM, listed, workers)
    other = {name: data.draw(st.permutations(parts)) for name, parts in listed.items()}
    ended = {name: set(parts[: data.draw(st.integers(0, len(parts)))]) for name, parts in listed.items()}
    assert held_parts(deal(PROGRAM, other, workers, held_parts(first))) == held_parts(first)
    again = deal(PROGRAM, other, workers, held_parts(first), ended=ended, levels=False)
    assert held_parts(again) == held_parts(first)


@given(parts_of_sources, st.integers(1, 5), st.lists(st.integers(20, 29), unique=True, max_size=6), st.data())
def test_new_parts_go_where_the_fewest_are_left_to_read(
    listed: Any, workers: int, new: list[int], data: st.DataObject
) -> None:
    first = deal(PROGRAM, listed, workers)
    ended = {name: set(parts[: data.draw(st.integers(0, len(parts)))]) for name, parts in listed.items()}
    after = with_new(PROGRAM, listed, {"a": new}, first, ended)
    kept = held_parts(after)
    assert all(kept[name][part] == worker for name, them in held_parts(first).items() for part, worker in them.items())
    loads = loads_of(first, ended)
    for _ in new:
        loads[loads.index(min(loads))] += 1
    assert sorted(loads_of(after, ended)) == sorted(loads)


@given(st.lists(st.tuples(st.sampled_from(["rescale", "appear", "end"]), st.integers(1, 5)), max_size=12))
def test_a_history_of_changes_leaves_each_part_on_one_worker(changes: list[tuple[str, int]]) -> None:
    listed: dict[str, Sequence[Any]] = {"a": [0, 1], "b": [10], "c": [0, 1, 2]}
    ended: dict[str, set[Any]] = {"a": set(), "b": set(), "c": set()}
    parts, following = deal(PROGRAM, listed, 2), 100
    for change, number in changes:
        if change == "rescale":
            parts = deal(PROGRAM, listed, number, held_parts(parts), ended=ended)
            loads = loads_of(parts, ended)
            assert max(loads) - min(loads) <= 1
        elif change == "appear":
            new = {"b": [*range(following, following + number)]}
            parts = with_new(PROGRAM, listed, new, parts, ended)
            listed, following = with_listed(listed, new), following + number
        else:
            for name, some in listed.items():
                ended[name].update(some[:number])
        assert {name: {*them} for name, them in held_parts(parts).items()} == {
            name: {*them} for name, them in listed.items()
        }
        assert sum(len(them) for by in parts.values() for them in by) == sum(map(len, listed.values()))


def test_two_topics_of_four_partitions_use_eight_workers() -> None:
    topics = {name: [(name, number) for number in range(4)] for name in "ab"}
    assert loads_of(deal(PROGRAM, topics, 8)) == [1] * 8
    on_four = deal(PROGRAM, topics, 4)
    assert all(len(them) == 1 for by in on_four.values() for them in by)


def test_equal_parts_of_streams_that_meet_stay_together() -> None:
    listed = {"a": [0, 1, 2], "b": [2.0, 1, 0, 3]}
    places = held_parts(deal(program_of(meeting=["a", "b"]), listed, 3))
    assert {part: worker for part, worker in places["b"].items() if part != 3} == places["a"]
    for apart in (program_of(keyed=["a", "b"]), program_of(unkeyed=["a", "b"])):
        assert loads_of(deal(apart, {"a": [0], "b": [0]}, 2)) == [1, 1]
    both = program_of(keyed=["a"], meeting=["b", "c"])
    assert both.part_groups.sources == {"a": "a", "b": "b", "c": "b"}
    assert both.part_groups.operators["sum"] == "b"


def test_parts_of_streams_that_begin_to_meet_come_together() -> None:
    apart, meeting = program_of(keyed=["a", "b"]), program_of(meeting=["a", "b"])
    listed = {"a": [*range(8)], "b": [*reversed(range(8))]}
    held = held_parts(deal(apart, listed, 4))
    assert held["a"] != held["b"]
    after = held_parts(deal(meeting, listed, 4, held))
    assert after["a"] == after["b"]
    assert redeal(meeting, listed, 4, held).before_of_keys("sum") is None, "a key has been on two workers"
    assert redeal(meeting, listed, 4, after).before_of_keys("sum") == after["a"]
    assert held_parts(deal(apart, listed, 4, after)) == after, "and stay there if they part again"


def test_parts_of_streams_that_meet_hashed_keys_are_hashed() -> None:
    program = program_of(keyed=["a"], hashed=["h"])
    assert program.hashed_sources == {"h"}
    parts = [*range(40)]
    dealt = held_parts(deal(program, {"a": parts, "h": [f"h{part}" for part in parts]}, 4))
    assert dealt["h"] == {part: rendezvous_select(part, range(4)) for part in dealt["h"]}
    loads = Counter([*dealt["a"].values(), *dealt["h"].values()])
    assert max(loads.values()) - min(loads.values()) <= 1, "the others are dealt around them"


@pytest.mark.parametrize("listed", [{}, {"a": []}])
def test_no_parts_at_all(listed: dict[str, list[Any]]) -> None:
    assert deal(PROGRAM, listed, 3) == {name: [[], [], []] for name in listed}


def test_a_key_that_is_no_part_has_the_worker_of_its_hash() -> None:
    groups = PartGroups({"a": "a", "b": "b"}, {"sum": "a", "other sum": "b"})
    places = PartPlaces(3, groups, {"a": [["p"], ["q"], []], "b": [[], ["p"], []]}, {"a": {"gone": 2, "left": 7}})
    select, other = places.bound(part_select, "sum"), places.bound(part_select, "other sum")
    assert select is not None
    assert other is not None
    assert [select(key, range(3)) for key in ("p", "q", "gone")] == [0, 1, 2]
    for key in ("left", "other"):
        assert select(key, range(3)) == rendezvous_select(key, range(3))
    assert select("p", range(5)) == rendezvous_select("p", range(5)), "another number of workers"
    assert other("p", range(3)) == 1
    places.set({"a": [[], ["p"], []], "b": [["p"], [], []]})
    assert (select("p", range(3)), other("p", range(3))) == (1, 0)
    places.add({"a": [[], [], ["new"]]})
    assert select("new", range(3)) == 2
    assert other("new", range(3)) == rendezvous_select("new", range(3))


@pytest.mark.parametrize(("was", "workers"), [(DEALT, 3), (PLACEMENT, 3), (DEALT, 2), (PLACEMENT, 4)])
def test_parts_that_were_hashed_are_dealt_at_the_next_start(was: str, workers: int) -> None:
    listed = {"a": [*range(12)], "b": [], "c": []}
    states = {"a": {0: dict.fromkeys(range(9), 1), 1: dict.fromkeys(range(9, 12), 1), 2: {"gone": 1}}}
    redeal = redealt(PROGRAM, listed, states, {"a": was}, 3, workers)
    loads = loads_of(redeal.parts)
    assert loads == [9, 3, 0] if (was, workers) == (DEALT, 3) else max(loads) - min(loads) <= 1
    assert redeal.moves(3) == ((was, workers) != (DEALT, 3))
    assert redeal.before["a"]["gone"] == 2
    if workers > 2:
        assert redeal.after.of("a")("gone", range(workers)) == 2, "its position stays"


def test_a_record_that_was_late_on_the_worker_of_its_part_stays_late() -> None:
    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("a", StatefulSource(ScriptedSource({})))
        stream.generate_epochs("e", lambda msg, _: msg.timestamp, per_part=False)

    program = compiled(build)
    positions = {0: {"p": 1}, 1: {"q": 1}}
    states = {"a": positions, "e": {0: {"epoch": 90}, 1: {"epoch": 100, "past": ((3, {0: 95, 1: 95, 2: 110}),)}}}
    redeal = redealt(program, {"a": ["p", "q", "new"]}, states, {"a": DEALT}, 2, 3)
    (new, *_) = reroute(program, states, 2, 3, placements={"a": DEALT, "e": PLACEMENT}, redeal=redeal)["e"]
    assert new["epoch"] == 90
    for codec in (PickleCodec(), MsgpackCodec()):
        past = codec.loads(codec.dumps(new["past"]))
        floors = Floors(redeal.after.bound(part_select, "e"), past)
        before = {key: [95, 95, 110][rendezvous_select(key, range(3))] for key in ("p", "q")}
        assert floors["p"] == max(90, before["p"])
        assert floors["q"] == max(100, before["q"])
