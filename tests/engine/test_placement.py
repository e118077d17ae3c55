"""Placement of parts and states, idle edges, and states that move to other workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import OperatorError, SnapshotError, StreamProvider, index_select, rendezvous_select
from malflow.engine.plan import Program
from malflow.engine.state_specs import DEALT, states_of
from malflow.engine.states.rescale import reroute
from malflow.engine.worker_time import Feed, Idle, feeds_of, idleness
from malflow.operators.epochs.frontiers import Floors
from malflow.partitioners import FORMER_PLACEMENTS, PLACEMENT, former_select
from malflow.sinks import StatefulSink, VecSink
from malflow.sources import SingleIteratorSource
from malflow.states.kinds import StateKind, StateSpec
from malflow.testing import ScriptedSource
from tests.kit.driving import compiled

OURS = PLACEMENT


def some_source(provider: StreamProvider, name: str = "s") -> Any:
    return provider.new_stream().source(name, SingleIteratorSource([]))


def keep(key: Any, value: Any, state: Any) -> Any:
    return value, state


def program_of(build: Callable[[Any], object]) -> Program:
    """Build a dataflow of one source."""
    return compiled(lambda provider: build(some_source(provider)))


def summed(partitioner: Any = rendezvous_select) -> Program:
    return program_of(lambda s: s.key_distribute("key", lambda msg: msg.value, partitioner).stateful_map("sum", keep))


# Names


class Parts:
    """A stateful sink of which nothing is asked here."""

    def assign_part(self, msg: Any) -> Any: ...
    def build_part(self, part: Any, state: Any) -> Any: ...


def modulo(key: Any, workers: Any) -> int:
    return int(key) % len(workers)


def test_every_state_is_named_once_with_what_keeps_it() -> None:
    def build(s: Any) -> None:
        on_time, late = s.generate_epochs("epochs", lambda msg, _: None)
        joined = on_time.union(late)
        on_time.union(late).sink("nowhere", VecSink())
        keyed = joined.key_distribute("key", lambda msg: 1, modulo)
        keyed.stateful_map("map", keep, version=3).stateful_op("op", lambda msg, state, out: None)
        s.key_local("local", lambda msg: 1).ttl_map("ttl", lambda key, value, time, entries: (value, entries))
        s.key_distribute("index", lambda msg: 1, index_select).map("no state", str).stateful_map("indexed", keep)
        s.sink("parts", StatefulSink(Parts()))  # type: ignore[arg-type]

    states = states_of(program_of(build))
    assert tuple(spec for spec in states if spec.kind is not StateKind.LETTERS) == (
        StateSpec("s", StateKind.SOURCE, 1, DEALT),
        StateSpec("epochs", StateKind.EPOCHS, 1, None),
        StateSpec("(epochs + epochs[1])/union", StateKind.FRONTIER, 1, None),
        StateSpec("key/exchange", StateKind.FRONTIER, 1, None),
        StateSpec("map", StateKind.STATEFUL_MAP, 3, f"{__name__}.modulo"),
        StateSpec("op", StateKind.STATEFUL_OP, 1, f"{__name__}.modulo"),
        StateSpec("ttl", StateKind.TTL_MAP, 1, None),
        StateSpec("index/exchange", StateKind.FRONTIER, 1, None),
        StateSpec("indexed", StateKind.STATEFUL_MAP, 1, "malflow.partitioners.index_select"),
        StateSpec("parts/exchange", StateKind.FRONTIER, 1, None),
        StateSpec("parts", StateKind.SINK, 1, OURS),
    )
    letters = {spec.name: spec.placement for spec in states if spec.kind is StateKind.LETTERS}
    assert letters == {
        "key/letters": OURS,
        "map/letters": f"{__name__}.modulo",
        "op/letters": f"{__name__}.modulo",
        "local/letters": OURS,
        "ttl/letters": OURS,
        "index/letters": OURS,
        "no state/letters": "malflow.partitioners.index_select",
        "indexed/letters": "malflow.partitioners.index_select",
        "nowhere/letters": OURS,
        "nowhere/unwritten/letters": OURS,
        "nowhere/refused/letters": OURS,
        "parts/letters": OURS,
    }


def test_partitioners_without_a_name_have_that_of_their_class() -> None:
    assert states_of(summed(partial(modulo)))[-1].placement == "functools.partial"
    assert states_of(summed(lambda key, workers: 0))[-1].placement.endswith("<lambda>")  # type: ignore[union-attr]


# Idle edges


def test_an_edge_is_idle_when_nothing_can_come_along_it() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        a, b = some_source(provider, "a"), some_source(provider, "b")
        a.key_distribute("far", lambda msg: 1).union(b, a)

    program = compiled(build_dataflow)
    feeds = feeds_of(program)[-1]
    assert feeds == (Feed(remote=frozenset("a")), Feed(frozenset("b")), Feed(frozenset("a")))
    far, b, a = feeds
    parts = {"a": [["part"], []], "b": [[], []]}

    def idle(feed: Feed, *ended: str) -> list[Idle]:
        return [idleness(feed, worker, parts, ended) for worker in range(2)]

    assert idle(far) == [Idle.BUSY, Idle.BUSY]
    assert idle(a) == [Idle.BUSY, Idle.EMPTY]
    assert idle(b) == idle(b, "b") == [Idle.EMPTY, Idle.EMPTY]
    assert idle(far, "a") == [Idle.ENDED, Idle.ENDED]
    assert idle(a, "a") == [Idle.ENDED, Idle.EMPTY]
    both = Feed(frozenset("ab"), frozenset("a"))
    assert idle(both, "b") == [Idle.BUSY, Idle.BUSY]
    assert idle(both, "a", "b") == [Idle.ENDED, Idle.ENDED]


def hashed(keys: Any, workers: int) -> list[list[Any]]:
    """Return the keys of each worker."""
    return [[key for key in keys if rendezvous_select(key, range(workers)) == worker] for worker in range(workers)]


# Keys

keys = st.lists(st.one_of(st.integers(), st.text(max_size=3), st.booleans()), unique=True)


@given(keys, st.integers(1, 5), st.integers(1, 5), st.sampled_from(["sum", "s"]))
def test_every_key_comes_to_where_its_records_come(keys: list[Any], before: int, after: int, name: str) -> None:
    old: dict[int, dict[Any, Any]] = {}
    for key in keys:
        old.setdefault(rendezvous_select(key, range(before)), {})[key] = f"state of {key!r}"
    new = reroute(summed(), {name: old, "unknown": {}}, before, after)
    assert list(new) == [name]
    assert {key: state for states in new[name] for key, state in states.items()} == {
        key: f"state of {key!r}" for key in keys
    }
    for worker, states in enumerate(new[name]):
        assert all(rendezvous_select(key, range(after)) == worker for key in states)


@pytest.mark.parametrize("workers", range(1, 8))
def test_one_worker_more_takes_its_share_and_nothing_else_moves(workers: int) -> None:
    every = range(10_000)
    old = hashed(every, workers)
    new = reroute(summed(), {"sum": {at: dict.fromkeys(held) for at, held in enumerate(old)}}, workers, workers + 1)[
        "sum"
    ]
    for before, after in zip(old, new, strict=False):
        assert set(after) <= set(before)
    assert len(new[workers]) == pytest.approx(len(every) / (workers + 1), rel=0.1)


def test_a_partitioner_that_fails_or_answers_no_worker_is_named() -> None:
    def broken(key: Any, workers: Any) -> int:
        return 7 if key == "far" else key / 0

    for key, reason in (("far", "the partitioner returned 7; it must return one of"), (1, "ZeroDivisionError")):
        with pytest.raises(OperatorError, match=rf"operator 'sum' failed at key .*{key}.*: {reason}.*; in .*broken"):
            reroute(summed(broken), {"sum": {0: {key: 0}}}, 1, 2)


def test_keys_stay_at_the_same_number_of_workers() -> None:
    old = {0: {"a": 1}, 1: {"b": 2}}
    for partitioner in (rendezvous_select, index_select):
        program = summed(partitioner)
        same = {spec.name: spec.placement for spec in states_of(program)}
        moved = reroute(program, {"sum": old}, 2, 2, placements=same)["sum"]
        assert moved[0] is old[0]
        assert moved[1] is old[1]


@pytest.mark.parametrize("before", [None, OURS, f"{__name__}.modulo"])
def test_keys_move_if_the_partitioner_may_have_changed(before: str | None) -> None:
    assert reroute(summed(modulo), {"sum": {0: {1: "a", 2: "b"}, 1: {3: "c"}}}, 2, 2, placements={"sum": before}) == {
        "sum": [{2: "b"}, {1: "a", 3: "c"}]
    }


def test_two_states_of_one_key_are_not_made_one() -> None:
    with pytest.raises(SnapshotError, match=r"operator 'sum' has two states for key 'a', on two workers.*key_local"):
        reroute(summed(), {"sum": {0: {"a": 1}, 1: {"a": 2}}}, 2, 2, placements={"sum": None})


def test_state_under_key_local_stays_as_long_as_nothing_changes() -> None:
    program = program_of(lambda s: s.key_local("key", lambda msg: 1).stateful_map("sum", keep))
    old = {"sum": {0: {"a": 1}, 1: {"a": 2}}}
    assert reroute(program, old, 2, 2, placements={"sum": None})["sum"] == [{"a": 1}, {"a": 2}]
    for after, placement in ((3, None), (1, None), (2, OURS)):
        with pytest.raises(SnapshotError, match=r"operator 'sum' keeps .*\.key_local\(\).*\.key_distribute\(\)"):
            reroute(program, old, 2, after, placements={"sum": placement})
    assert reroute(program, {"sum": {0: {"a": 1}}}, 1, 1, placements={"sum": OURS})["sum"] == [{"a": 1}]
    assert reroute(program, {}, 2, 3) == {}  # the operator is new


# Epochs


def timed() -> Program:
    return program_of(lambda s: s.generate_epochs("epochs", lambda msg, _: None)[0])


IDLE, ENDED = {"idle": int(Idle.EMPTY)}, {"idle": int(Idle.ENDED)}


@pytest.mark.parametrize(
    ("old", "least"),
    [
        ([{"epoch": 7}, {"epoch": 5}], 5),
        ([{"epoch": 7}, {}], None),
        ([{"epoch": 7}, IDLE], 7),
        ([{"epoch": 7}, IDLE | {"epoch": 3}], 7),
        ([{"epoch": 7}, ENDED | {"epoch": 3}], 7),
        ([IDLE, ENDED | {"epoch": 3}, ENDED | {"epoch": 9}], 3),
        ([ENDED, ENDED | {"epoch": 9}], None),
        ([IDLE | {"epoch": 3}, IDLE | {"epoch": 4}], 3),
        ([{}, IDLE], None),
    ],
)
def test_new_workers_begin_at_the_least_epoch_of_those_that_had_records(old: list[Any], least: int | None) -> None:
    for after in {1, 2, 3, 4} - {len(old)}:
        expected = [{} if least is None else {"epoch": least}] * after
        assert reroute(timed(), {"epochs": dict(enumerate(old))}, len(old), after) == {"epochs": expected}


def test_workers_without_a_part_get_the_epoch_of_the_others() -> None:
    old = {0: {"epoch": 7}, 1: {"epoch": 5}, 2: ENDED | {"epoch": 3}, 3: IDLE | {"epoch": 1}}
    assert reroute(timed(), {"epochs": old}, 5, 5) == {"epochs": [*(old[at] for at in range(3)), IDLE, {}]}
    assert reroute(timed(), {"epochs": old}, 4, 4) == {"epochs": [*(old[at] for at in range(3)), IDLE | {"epoch": 5}]}


def test_record_late_on_an_old_worker_stays_late() -> None:
    program = program_of(lambda s: s.key_distribute("key", lambda msg: 1).generate_epochs("e", lambda msg, _: None)[0])
    (two,) = {str(it): it for it in reroute(program, {"e": {0: {"epoch": 90}, 1: {"epoch": 100}}}, 2, 3)["e"]}.values()
    assert two == {"epoch": 90, "past": ((2, {0: 90, 1: 100}),)}
    passed = {"epoch": 95}  # the worker whose keys have passed the old epochs
    (three,) = {str(it): it for it in reroute(program, {"e": {0: two, 1: passed, 2: two}}, 3, 1)["e"]}.values()
    assert three == {"epoch": 90, "past": ((3, {0: 90, 1: 95, 2: 90}), (2, {0: 90, 1: 100}))}
    assert reroute(program, {"e": {0: {**three, "epoch": 100}}}, 1, 2)["e"] == [{"epoch": 100}] * 2


def test_epochs_before_rounding_move_as_the_rounded_ones_do() -> None:
    old = {0: {"epoch": 20, "answered": 27}, 1: {"epoch": 20, "answered": 21}, 2: ENDED | {"epoch": 10, "answered": 19}}
    moved = reroute(timed(), {"epochs": old}, 3, 2)["epochs"]
    assert moved == [{"epoch": 20, "answered": 21}] * 2
    began = {0: {"epoch": 23}, 1: {"epoch": 20, "answered": 27}, 2: IDLE}  # the first had no step before
    assert reroute(timed(), {"epochs": began}, 3, 1)["epochs"][0]["answered"] == 23
    (_, _, idle) = reroute(timed(), {"epochs": began}, 3, 3)["epochs"]
    assert idle == IDLE | {"epoch": 20, "answered": 23}
    new = {0: {"epoch": 20, "answered": 27}, 1: IDLE | {"epoch": 20, "answered": 21}}
    assert reroute(timed(), {"epochs": new}, 2, 2)["epochs"][1] == IDLE | {"epoch": 20, "answered": 27}


def test_epoch_of_any_worker_counts_after_a_change_of_partitioner() -> None:
    program = program_of(lambda s: s.key_distribute("key", lambda msg: 1).generate_epochs("e", lambda msg, _: None)[0])
    old = {"e": {0: {"epoch": 90}, 1: {"epoch": 100, "past": ((3, {0: 80, 2: 110}),)}}}
    reached = [{"epoch": 90, "past": ((1, {0: 110}),)}] * 2
    assert reroute(program, old, 2, 2, placements={"e": f"{__name__}.modulo"})["e"] == reached
    for same in (OURS, None):  # older snapshots do not say
        assert reroute(program, old, 2, 2, placements={"e": same})["e"] == [old["e"][0], old["e"][1]]


@pytest.mark.parametrize("former", FORMER_PLACEMENTS)
def test_keys_of_a_former_version_keep_the_epochs_of_their_workers(former: str) -> None:
    program = program_of(lambda s: s.key_distribute("key", lambda msg: 1).generate_epochs("e", lambda msg, _: None)[0])
    old = {"e": {0: {"epoch": 90}, 1: {"epoch": 100, "past": ((3, {2: 110}),)}}}
    (new, other) = reroute(program, old, 2, 2, placements={"e": former})["e"]
    assert new == other
    assert new["epoch"] == 90
    floors = Floors(rendezvous_select, new["past"])
    for key in range(50):
        by_three = 110 if former_select(key, range(3)) == 2 else 90
        assert floors[key] == max(by_three, 90, [90, 100][former_select(key, range(2))])
    (moved, *_) = reroute(program, {"e": {0: new, 1: new}}, 2, 3)["e"]
    assert all(entry in moved["past"] for entry in new["past"])


def test_the_epoch_of_a_part_goes_where_its_records_come_from() -> None:
    parts = [f"part {number}" for number in range(9)]
    program = compiled(
        lambda provider: provider.new_stream().source("s", ScriptedSource({})).generate_epochs("e", lambda *_: None)
    )
    placed = hashed(parts, 3)
    old = {at: {"epoch": 5, **{("part", part): len(part) for part in held}} for at, held in enumerate(placed)}
    for after in (1, 2, 4):
        new = reroute(program, {"e": old}, 3, after)["e"]
        assert [{key[1] for key in held if key != "epoch"} for held in new] == [
            set(held) for held in hashed(parts, after)
        ]
        assert all(held["epoch"] == 5 for held in new)
    old = {at: {"epoch": 5, **{("answered", part): len(part) for part in held}} for at, held in enumerate(placed)}
    assert {key for key in reroute(program, {"e": old}, 3, 1)["e"][0] if key != "epoch"} == {
        ("answered", part) for part in parts
    }


def test_the_edges_of_an_exchange_begin_where_the_whole_stream_is() -> None:
    old = {0: {0: 9, 1: 5, "merged": 5}, 1: {0: 9, 1: 5, "merged": 5}}
    new = {0: 5, 1: 5, 2: 5, "merged": 5}
    name = "key/exchange"
    assert reroute(summed(), {name: old}, 2, 3) == {name: [new] * 3}
    assert reroute(summed(), {name: old}, 2, 2) == {name: [old[0], old[1]]}
    assert reroute(summed(), {name: {0: {0: 9}, 1: {0: 9}}}, 2, 3) == {name: [{}] * 3}


def test_union_edges_begin_at_the_least_epoch_of_their_workers() -> None:
    program = compiled(lambda provider: some_source(provider, "a").union(some_source(provider, "b")))
    name = "(a + b)/union"
    busy, ended, empty = map(int, Idle)
    old: dict[int, dict[Any, Any]] = {
        0: {0: 9, 1: 4, "merged": 4},
        1: {0: 3, 1: 2, "merged": 2, "idle": (busy, ended)},
        2: {0: 1, "idle": (empty, empty)},
    }
    assert reroute(program, {name: old}, 3, 1) == {name: [{0: 3, 1: 4, "merged": 2}]}
    assert reroute(program, {name: old}, 3, 3) == {name: list(old.values())}
    assert reroute(program, {name: {0: {0: 9}, 1: {0: 3, "idle": (0, 2)}}}, 2, 4) == {name: [{0: 3}] * 4}
