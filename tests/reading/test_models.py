"""Reading against a model: a job's states, remembered as lists at each snapshot, over increments and rescales."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.partitioners import PLACEMENT, index_select, rendezvous_select
from malflow.snapshot import ABSENT, diff_state, read_state, writer
from malflow.snapshot.files import sections
from malflow.snapshot.files.data_file import pack
from tests.kit.jobs import StoreBackend
from tests.kit.memory_store import MemoryStore
from tests.reading.keeping import Keeper

KEYS = st.integers(0, 12)
STATES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
CHANGES = st.dictionaries(KEYS, STATES, max_size=8)
STEPS = st.lists(CHANGES | st.integers(1, 4) | st.none(), min_size=1, max_size=8)
"""Changes of states, a number of workers, or None to drop a key and write all states again."""
FILES = st.sampled_from([10, 40, 1 << 20])
PLACEMENTS = st.sampled_from([PLACEMENT, "malflow.partitioners.index_select", "gone.select"])


def kept(steps: list[Any], limit: int, placement: str, growth: float = 1e9) -> Keeper:
    """Make a job that takes a snapshot at each step, in files of at most so many bytes."""
    place = rendezvous_select if placement == PLACEMENT else index_select
    keeper = Keeper(StoreBackend(MemoryStore(), growth=growth, retain=100), 2, placement, place)
    with pytest.MonkeyPatch.context() as patched:
        for module in (writer, sections):
            patched.setattr(module, "pack", lambda sections, _limit: pack(sections, limit))
        for step in steps:
            match step:
                case None:
                    keeper.rewrite()
                case int():
                    keeper.rescale(step)
                case _:
                    keeper.save(step)
    return keeper


@pytest.mark.slow
@given(steps=STEPS, limit=FILES, placement=PLACEMENTS, growth=st.sampled_from([0.5, 1e9]))
def test_states_are_read_as_they_were_at_each_snapshot(
    steps: list[Any], limit: int, placement: str, growth: float
) -> None:
    keeper = kept(steps, limit, placement, growth)
    for snapshot, states in keeper.taken.items():
        assert list(read_state(keeper.backend, "sum", at=snapshot)) == states
    last, by_key = max(keeper.taken), dict(keeper.taken[max(keeper.taken)])
    for key in range(13):
        assert read_state(keeper.backend, "sum", key=key, at=last, default=ABSENT) == by_key.get(key, ABSENT)


@pytest.mark.slow
@given(steps=STEPS, placement=PLACEMENTS)
def test_differences_make_one_snapshot_of_the_other(steps: list[Any], placement: str) -> None:
    keeper = kept(steps, 1 << 20, placement)
    ids = list(keeper.taken)
    for before, after in [(ids[0], ids[-1]), (ids[-1], ids[0]), (ids[len(ids) // 2], ids[-1])]:
        states, wanted = dict(keeper.taken[before]), dict(keeper.taken[after])
        for key, was, now in diff_state(keeper.backend, "sum", before, after):
            assert was == states.get(key, ABSENT)
            assert was != now
            if now is ABSENT:
                del states[key]
            else:
                states[key] = now
        assert states == wanted
