"""Keyed state and the changes that it reports, against a plain dict."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from malflow import ExpireMap
from malflow.message import MIN
from malflow.states.keyed import Delta, KeyedState, StatesView, copied
from malflow.states.paned import PanedState

some_keys = st.integers(0, 5)


class DeltasRebuildTheState(RuleBasedStateMachine):
    """A state, and a copy that is brought up to date by pickled deltas only."""

    def __init__(self) -> None:
        super().__init__()
        self.state = KeyedState(list, tracked=True)
        self.view = StatesView(self.state)
        self.model: dict[int, list[int]] = {}
        self.replica = KeyedState()

    @rule(key=some_keys, value=st.integers())
    def handle_a_record(self, key: int, value: int) -> None:
        self.state[key] = self.state[key]
        self.state[key].append(value)
        self.state.touch([key])
        self.model.setdefault(key, []).append(value)

    @rule(key=some_keys, value=st.integers())
    def mutate_through_the_view(self, key: int, value: int) -> None:
        if key in self.view:
            self.view[key].append(value)
            self.model[key].append(value)

    @rule(value=st.integers())
    def mutate_all(self, value: int) -> None:
        for states in (self.view.values(), [state for _, state in self.view.items()]):
            for state in states:
                state.append(value)
        for state in self.model.values():
            state.extend([value, value])

    @rule(key=some_keys)
    def set_through_the_view(self, key: int) -> None:
        self.view[key] = [7]
        self.model[key] = [7]

    @rule(key=some_keys)
    def drop(self, key: int) -> None:
        assert self.view.pop(key, None) == self.model.pop(key, None)

    @rule()
    def clear(self) -> None:
        self.view.clear()
        self.model.clear()

    @rule(key=some_keys)
    def drop_and_bring_back(self, key: int) -> None:
        """Insert a key again as another that equals it, at the end of the order."""
        self.drop(key)
        self.set_through_the_view(float(key))

    @rule(keys=st.lists(some_keys))
    def touch_without_a_change(self, keys: list[int]) -> None:
        self.state.touch(keys)

    @rule()
    def forget(self) -> None:
        self.state.forget()

    @rule()
    def catch_up(self) -> None:
        delta = self.state.delta()
        assert delta.whole == (delta.changed is self.state)
        self.replica.apply(pickle.loads(pickle.dumps(delta)))
        assert [*map(repr, self.replica.items())] == [*map(repr, self.state.items())]
        assert self.replica == self.model

    @rule()
    def a_second_delta_is_empty(self) -> None:
        self.catch_up()
        assert not self.state.delta()

    @invariant()
    def the_view_is_the_model(self) -> None:
        assert list(self.view) == list(self.model)
        assert dict(self.state) == self.model
        assert repr(self.view) == repr(self.model)


TestDeltasRebuildTheState = DeltasRebuildTheState.TestCase


def test_reading_keys_changes_nothing() -> None:
    state = KeyedState(tracked=True)
    state.apply(Delta({"a": 1, "b": 2}, whole=True))
    view = StatesView(state)
    assert (list(view), len(view), "a" in view) == (["a", "b"], 2, True)
    assert not state.delta()
    assert view["a"] == 1
    assert state.delta() == Delta({"a": 1})


def test_the_first_delta_is_whole_and_the_next_hold_what_changed() -> None:
    state = KeyedState(tracked=True)
    state.update(a=1, b=2)
    assert state.delta() == Delta({"a": 1, "b": 2}, whole=True)
    state["c"] = 3
    state["a"] = 4
    del state["b"]
    state.touch("abc")
    assert state.delta() == Delta({"c": 3, "a": 4}, frozenset("b"), 2)
    state["a"] = 5
    state.touch("a")
    assert state.delta() == Delta({"a": 5}, appended=0)
    assert not state.delta()


def test_a_whole_delta_replaces_what_was_there_and_counts_even_when_empty() -> None:
    state = KeyedState(tracked=True)
    state["gone"] = 1
    whole = Delta({"a": 1}, whole=True)
    assert whole
    state.apply(whole)
    assert state == {"a": 1}
    assert not state.delta()
    state.apply(Delta(whole=True))
    assert Delta(whole=True)
    assert state == {}


def test_deltas_while_keys_come_and_go_stay_small() -> None:
    state = KeyedState(tracked=True)
    state.delta()
    for key in range(3000):
        state[key] = key
        state.touch((key,))
        del state[key]
    assert len(state._dirty or ()) <= 1024
    assert state.delta() == Delta(whole=True)


def test_a_delta_of_most_keys_is_the_whole_state() -> None:
    state = KeyedState(tracked=True)
    state.update(dict.fromkeys(range(10_000), 0))
    state.delta()
    for changed, whole in ((7_000, False), (9_000, True)):
        state.touch(range(changed))
        delta = state.delta()
        assert (delta.whole, len(delta.changed)) == (whole, 10_000 if whole else changed)
        assert not state.delta()


def test_a_state_travels_as_a_plain_dict() -> None:
    state = KeyedState(lambda: 0, tracked=True)
    state["a"] = 1
    travelled = pickle.loads(pickle.dumps(state.delta()))
    assert (type(travelled.changed), travelled.changed) == (dict, {"a": 1})


def test_an_untracked_state_notes_nothing() -> None:
    state = KeyedState(int)
    state["a"] = 1
    state.touch(["a"])
    state.forget()
    assert not state.delta()


def test_a_view_has_no_defaults_and_checks_keys() -> None:
    view = StatesView(KeyedState(int))
    with pytest.raises(KeyError):
        view["a"]
    with pytest.raises(TypeError, match="has no stable hash"):
        view[object()] = 1


@pytest.mark.parametrize("value", [[1, [2]], {"a": [1]}, {1, 2}, [1, 2], {"a": 1}, ([1],), "text"])
def test_a_copy_shares_nothing_that_can_change(value: Any) -> None:
    copied_value = copied(value)
    assert copied_value == value
    frozen = copy.deepcopy(copied_value)
    for part in (value, *(value.values() if isinstance(value, dict) else value)):
        if isinstance(part, list):
            part.append(9)
        if isinstance(part, set):
            part.add(9)
        if isinstance(part, dict):
            part["new"] = 9
    assert copied_value == frozen


class ExpireMapIsADictWithTimes(RuleBasedStateMachine):
    """An `ExpireMap` against a plain dict of (value, expiry)."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: ExpireMap[str, int, int] = ExpireMap()
        self.model: dict[str, tuple[int, int]] = {}

    @rule(key=st.sampled_from("abcd"), value=st.integers(), expiry=st.integers(0, 20))
    def insert(self, key: str, value: int, expiry: int) -> None:
        before = self.model.pop(key, None)
        assert self.entries.insert(key, value, expiry) == (before and before[0])
        self.model[key] = (value, expiry)

    @rule(key=st.sampled_from("abcd"))
    def remove(self, key: str) -> None:
        before = self.model.pop(key, None)
        assert self.entries.remove(key) == (before and before[0])

    @rule(until=st.integers(0, 20))
    def expire(self, until: int) -> None:
        due = {key: value for key, (value, expiry) in self.model.items() if expiry <= until}
        removed = self.entries.expire(until)
        expiries = [self.model[key][1] for key, _ in removed]
        assert dict(removed) == due
        assert expiries == sorted(expiries)
        self.model = {key: entry for key, entry in self.model.items() if key not in due}

    @rule()
    def travel(self) -> None:
        self.entries = pickle.loads(pickle.dumps(self.entries))

    @invariant()
    def they_agree(self) -> None:
        assert len(self.entries) == len(self.model)
        assert list(self.entries) == list(self.model)
        assert self.entries.is_empty() == (not self.model)
        assert self.entries.earliest == min((expiry for _, expiry in self.model.values()), default=MIN)
        for key in "abcd":
            assert (key in self.entries) == (key in self.model)
            assert self.entries.get(key, "none") == self.model.get(key, ("none", 0))[0]
        assert self.entries == copy.deepcopy(self.entries)
        assert len(self.entries._order) <= 2 * len(self.entries) + 9


TestExpireMap = ExpireMapIsADictWithTimes.TestCase


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 9))))
def test_expire_maps_are_equal_by_their_entries(inserts: list[tuple[str, int, int]]) -> None:
    one, other = ExpireMap[str, int, int](), ExpireMap[str, int, int]()
    for key, value, expiry in inserts:
        one.insert(key, value, expiry)
    for key, (value, expiry) in {key: (value, expiry) for key, value, expiry in inserts}.items():
        other.insert(key, value, expiry)
    assert one == other
    assert one != dict.fromkeys(one)


def test_dropping_most_slots_makes_the_next_delta_whole() -> None:
    state = PanedState(tracked=True)
    for number in range(2):
        state.pane(number).update(dict.fromkeys(range(5000 - 4000 * number), 1))
    state.delta()
    state.drop(0)
    assert state.delta() == Delta({(1, key): 1 for key in range(1000)}, whole=True)
