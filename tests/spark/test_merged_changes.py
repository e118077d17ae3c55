"""Changes that are merged: any process catches up from where it is, and none has many to read."""

from __future__ import annotations

from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.runtime.spark import changelog_index
from malflow.runtime.spark.changelog.changelog import Changelog, ScratchFolder
from malflow.runtime.spark.changelog.entry import NEVER, ChangelogEntry, pack_entry
from malflow.runtime.spark.changelog_index import ChangelogIndex
from malflow.runtime.spark.tasks.stage_output import merged
from malflow.states.keyed import KeyedState

PLACE = ScratchFolder("", {}, "ab" * 8, b"a key for tests")
LONGEST = 8

keys = st.sampled_from("abcdefgh")
edits = st.lists(st.tuples(keys, st.none() | st.integers(0, 9)), max_size=4)
cuts = st.none() | st.integers(0, 20)


def edited(state: KeyedState, edit: list[tuple[str, int | None]]) -> None:
    for key, value in edit:
        state.touch((key,))
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


@given(ticks=st.lists(st.tuples(edits, cuts), min_size=1, max_size=14), whole=st.booleans())
@pytest.mark.slow
def test_a_merged_change_can_follow_any_that_it_replaces(
    ticks: list[tuple[list[tuple[str, int | None]], int | None]], whole: bool
) -> None:
    state, held = KeyedState(tracked=True), list[list[tuple[Any, Any]]]()
    if not whole:
        state.delta()  # then no delta is complete
    with TemporaryDirectory() as folder:
        changelog, last = Changelog(replace(PLACE, url=folder), 1), NEVER
        for tick, (edit, cut) in enumerate(ticks):
            edited(state, edit)
            delta = state.delta()
            entry = ChangelogEntry(tick, last, {"sum": delta}, whole=delta.whole, finished={"source": [tick]})
            before = [] if cut is None or delta.whole else changelog.since(0, 0, last, max(NEVER, tick - cut))
            if before and not before[0].whole:
                entry = merged([*before, entry])
            assert changelog.write(0, 0, pack_entry(entry))
            held.append([*state.items()])
            last = tick
        for tick in range(NEVER, last):
            changes = changelog.since(0, 0, last, tick)
            if tick != NEVER and not changes[0].follows(tick):
                continue
            copy = KeyedState()
            copy.update(held[tick] if tick != NEVER else [])
            for change in changes:
                copy.apply(change.deltas["sum"])
            assert [*copy.items()] == held[last], "also in the order of keys"
            finished = [part for change in changes for part in change.finished["source"]]
            assert set(finished) >= {*range(tick + 1 if not changes[0].whole else changes[0].tick, last + 1)}
        followed = [changelog.since(0, 0, last, tick)[0].follows(tick) for tick in range(last)]
        assert all(followed), "every tick has an entry, so a process that ran it can catch up"


@given(
    base=st.integers(0, 1 << 30) | st.just(1 << 40),
    sizes=st.lists(st.integers(1, 1 << 22), min_size=1, max_size=12),
    pattern=st.randoms(use_true_random=False),
)
@pytest.mark.slow
def test_a_process_reads_few_changes_and_a_byte_is_merged_few_times(base: int, sizes: list[int], pattern: Any) -> None:
    with patch.object(changelog_index, "_LONGEST", LONGEST):
        check_merges(base, sizes, pattern)


def check_merges(base: int, sizes: list[int], pattern: Any) -> None:
    index, written, given_sizes = ChangelogIndex(1, 1), 0, 0
    index.add(0, 0, 0, base, {}, whole=True)
    for tick in range(1, 400):
        whole, merges, size = bool(index.rewrites), index.merges, pattern.choice(sizes)
        given_sizes += size
        chain = index._chains[0][0]
        after = merges[0][2] if merges else None
        gone = sum(of for at, of in chain.sizes.items() if after is not None and at > after)
        written += base if whole else gone + size
        index.add(0, 0, tick, base if whole else gone + size, {}, whole=whole, merged=after)
        assert len(chain.sizes) <= LONGEST
        assert index.covers(-1), "nothing is lost"
        dead = {at for _, _, at in index.forget()}
        assert dead.isdisjoint(chain.sizes)
        assert chain.ticks == [*([chain.whole] if chain.whole in chain.ticks else []), *chain.sizes]
    if base > 1 << 35:  # so that it is never written again
        assert written <= 8 * given_sizes
