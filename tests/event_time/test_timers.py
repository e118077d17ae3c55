"""Timers fire like a list of deadlines that is searched."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from malflow.event_time.timers import Timers
from malflow.message import MAX

keys = st.sampled_from("abcd")
times = st.integers(0, 9)
acts = st.one_of(
    st.tuples(st.just("set"), keys, times), st.tuples(st.just("cancel"), keys), st.tuples(st.just("due"), times)
)


@given(acts=st.lists(acts, max_size=40))
def test_each_key_fires_once_in_the_order_of_deadlines(acts: list[Any]) -> None:
    timers, deadlines = Timers(), dict[str, int]()
    for act, *arguments in [*acts, ("due", MAX)]:
        if act == "set":
            key, at = arguments
            timers.set(key, at)
            deadlines.pop(key, None)
            deadlines[key] = at
        elif act == "cancel":
            timers.cancel(arguments[0])
            deadlines.pop(arguments[0], None)
        else:
            due = sorted((key for key, at in deadlines.items() if at <= arguments[0]), key=deadlines.__getitem__)
            assert list(timers.due(arguments[0])) == due
            deadlines = {key: at for key, at in deadlines.items() if key not in due}
        assert timers.at == deadlines
        assert timers.earliest == min(deadlines.values(), default=None)


def test_deadlines_that_are_set_meanwhile_fire_too() -> None:
    timers = Timers()
    timers.set("a", 1)
    fired = []
    for key in timers.due(5):
        fired.append(key)
        if len(fired) < 3:
            timers.set("b", 2 + len(fired))
    assert fired == ["a", "b", "b"]


def test_deadlines_that_move_leave_nothing_behind() -> None:
    """A key that moves its deadline with each record would otherwise fill the memory."""
    timers = Timers()
    for at in range(10_000):
        timers.set("a", at)
    assert len(timers._heap) < 2_000
    assert list(timers.due(MAX)) == ["a"]
