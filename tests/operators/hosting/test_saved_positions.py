"""Positions of parts, written down only where they have changed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.operators.hosting.parts import Positions
from malflow.states.keyed import Delta, KeyedState


def tracked() -> tuple[KeyedState, Positions]:
    state = KeyedState(tracked=True)
    state.delta()
    return state, Positions(state)


@pytest.mark.parametrize("position", [7, "at", b"at", None, (1, "a"), {"at": [1]}, 1.5])
def test_a_position_that_stays_the_same_is_written_once(position: Any) -> None:
    state, positions = tracked()
    positions.note("part", position)
    assert state.delta() == Delta({"part": position}, appended=1)
    positions.note("part", pickle.loads(pickle.dumps(position)))
    assert not state.delta()


@pytest.mark.parametrize(
    ("before", "after"), [(1, True), (1, 1.0), (0.0, -0.0), ((1,), (True,)), (b"a", bytearray(b"a"))]
)
def test_positions_that_equal_one_another_are_not_taken_for_the_same(before: Any, after: Any) -> None:
    state, positions = tracked()
    positions.note("part", before)
    state.delta()
    positions.note("part", after)
    assert repr(state.delta().changed["part"]) == repr(after)


def test_a_position_that_can_not_be_compared_counts_as_changed() -> None:
    state, positions = tracked()
    for _ in range(2):
        positions.note("part", lambda: 1)
        assert state.delta()


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.booleans())))
@pytest.mark.slow
def test_a_position_that_its_part_changes_in_place_moves_with_its_worker(steps: list[tuple[int, str, bool]]) -> None:
    """At each step a process takes over, builds a part from the state itself, and moves it, or not."""
    model = {"a": [0], "b": [0]}
    places = tracked(), tracked()
    for part in model:
        places[0][1].note(part, [0])
    delta = pickle.loads(pickle.dumps(places[0][0].delta()))
    places[1][0].apply(delta)
    places[1][1].apply(delta)
    for place, part, moves in steps:
        state, positions = places[place]
        readers = {name: state[name] for name in model}
        if moves:
            readers[part].append(len(model[part]))
            model[part].append(len(model[part]))
        for name, reader in readers.items():
            positions.note(name, reader)
        written = state.delta()
        assert set(written.changed) == ({part} if moves else set())
        other = places[1 - place]
        travelled = pickle.loads(pickle.dumps(written))
        other[0].apply(travelled)
        other[1].apply(travelled)
        assert dict(other[0]) == dict(state) == model
