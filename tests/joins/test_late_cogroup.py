"""Late records of several streams are added to the groups of open windows, or are too late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import GraphError, SingleThreadRuntime, limit_out_of_orderness
from malflow.testing import PAUSE, assert_exactly_once
from malflow.windows import counting, session, sliding, tumbling
from tests.joins.late_groups import Sinks, late_groups, new_sinks
from tests.joins.running import script_of, source_of, streams
from tests.kit.driving import Store, compiled, finish
from tests.windows.model import sliding_windows

pytestmark = pytest.mark.slow

WINDOWS = {"tumbling": tumbling(8), "sliding": sliding(6, 2), "session": session(4)}
OF_TIME = {"tumbling": partial(sliding_windows, 8, 8, 0), "sliding": partial(sliding_windows, 6, 2, 0)}
kinds = st.sampled_from(sorted(WINDOWS))


def found_in(sinks: Sinks) -> tuple[Counter[Any], list[Counter[Any]]]:
    """Return the groups, and the values of each side that were too late."""
    groups = Counter(
        (it.key, it.value.start, it.value.end, *(tuple(sorted(group)) for group in it.value.value)) for it in sinks[0]
    )
    return groups, [Counter(sink.values) for sink in sinks[1:]]


def expected(items: Sequence[Any], bound: int, kind: str) -> tuple[Counter[Any], list[Counter[Any]]]:
    """Return the same for records that arrive one by one."""
    epochs: list[Any] = [None, None]
    held: list[tuple[Any, int, int, list[Any]]] = []  # key, first or start, last or end, side and value
    lost: list[Counter[Any]] = [Counter(), Counter()]
    for side, key, timestamp, value in items:
        epoch = None if None in epochs else min(epochs)
        add = _to_session if kind == "session" else partial(_to_windows, OF_TIME[kind])
        if not add(held, epoch, key, timestamp, (side, value)):
            lost[side][value] += 1
        own = epochs[side]
        epochs[side] = timestamp - bound if own is None else max(own, timestamp - bound)
    gap = 4 if kind == "session" else 0
    groups = Counter(
        (key, start, end + gap, *(tuple(sorted(value for its, value in values if its == side)) for side in (0, 1)))
        for key, start, end, values in held
    )
    return groups, lost


def _to_windows(windows_of: Any, held: list[Any], epoch: Any, key: Any, timestamp: int, entry: Any) -> bool:
    open_ones = [(start, end) for start, end in windows_of(timestamp) if epoch is None or end - 1 > epoch]
    for start, end in open_ones:
        found = next((it for it in held if it[:3] == (key, start, end)), None)
        if found is None:
            held.append((key, start, end, [entry]))
        else:
            found[3].append(entry)
    return bool(open_ones)


def _to_session(held: list[Any], epoch: Any, key: Any, timestamp: int, entry: Any) -> bool:
    open_ones = [it for it in held if it[0] == key and (epoch is None or it[2] + 4 - 1 > epoch)]
    near = [it for it in open_ones if it[1] - 4 < timestamp < it[2] + 4]
    if not near and epoch is not None and timestamp + 4 - 1 <= epoch:
        return False
    for it in near:
        held.remove(it)
    first, last = min([timestamp, *(it[1] for it in near)]), max([timestamp, *(it[2] for it in near)])
    held.append((key, first, last, [*(one for it in near for one in it[3]), entry]))
    return True


def spread(items: Sequence[Any]) -> list[Any]:
    """Return records with a tick for each."""
    return [part for item in items if item is not PAUSE for part in (item, PAUSE)]


@given(items=streams, bound=st.integers(0, 3), kind=kinds, debug=st.booleans())
def test_late_records_of_each_stream_are_in_open_groups(items: list[Any], bound: int, kind: str, debug: bool) -> None:
    sinks = new_sinks()
    SingleThreadRuntime(late_groups(source_of(spread(items)), bound, WINDOWS[kind], sinks), debug=debug).execute()
    assert found_in(sinks) == expected([it for it in items if it is not PAUSE], bound, kind)


@given(items=streams, bound=st.integers(0, 3), kind=kinds, workers=st.integers(1, 3))
def test_each_record_is_in_a_group_or_too_late(items: list[Any], bound: int, kind: str, workers: int) -> None:
    sinks = new_sinks()
    SingleThreadRuntime(late_groups(source_of(items), bound, WINDOWS[kind], sinks), parallelism=workers).execute()
    for side in (0, 1):
        inside = {value for it in sinks[0] for value in it.value.value[side]}
        lost = list(sinks[1 + side].values)
        assert inside.isdisjoint(lost)
        assert sorted([*inside, *lost]) == [it[3] for it in items if it is not PAUSE and it[0] == side]


@given(items=streams, bound=st.integers(0, 3), kind=kinds, stop=st.integers(1, 30))
def test_a_restart_changes_nothing(items: list[Any], bound: int, kind: str, stop: int) -> None:
    sinks = new_sinks()
    program, store = compiled(late_groups(source_of(spread(items)), bound, WINDOWS[kind], sinks)), Store()
    run = store.restore(program, 1)
    for _ in range(stop):
        if not run.is_finished:
            run.tick()
            store.commit(run, program)
    run.close()
    finish(store.restore(program, 1))
    assert found_in(sinks) == expected([it for it in items if it is not PAUSE], bound, kind)


def test_late_records_of_one_stream_only() -> None:
    items = [(0, "a", 9, "left"), (1, "a", 9, "right"), (0, "a", 2, "late left"), (1, "a", 2, "late right")]
    sinks = new_sinks()
    SingleThreadRuntime(late_groups(source_of(spread(items)), 3, tumbling(20), sinks, both=False)).execute()
    assert found_in(sinks)[0] == Counter([("a", 0, 20, ("late left", "left"), ("right",))])


@pytest.mark.parametrize("kind", sorted(WINDOWS))
def test_groups_with_late_records_are_exactly_once(kind: str) -> None:
    """One stream is ahead: which windows are open would depend on how far both have come."""
    records = [(1, "a", 1000, -1), *[(0, "ab"[n % 2], n * 7 % 23 + n, n) for n in range(20)]]
    build = late_groups(source_of([]), 2, WINDOWS[kind], new_sinks())
    assert_exactly_once(build, {"source": script_of(records)}, max_examples=10)


def test_late_records_that_make_no_sense_are_refused() -> None:
    def build(windows: Any, **options: Any) -> None:
        compiled(late_groups(source_of([]), 0, windows, new_sinks(), **options))

    with pytest.raises(GraphError, match=r"'groups' has groups, whose results can't be revised: leave out until="):
        build(tumbling(5), until=3)
    with pytest.raises(GraphError, match="'groups' has count windows"):
        build(counting(5))


@pytest.mark.parametrize(
    ("late", "why"),
    [
        (lambda one, other: [one, other], "needs late= as a list with the late records of each of the other"),
        (lambda one, other: [one], "needs the late records of the generator that its own records come from"),
        (lambda one, other: other, "needs late= as a list"),
    ],
)
def test_late_records_of_other_streams_are_refused(late: Any, why: str) -> None:
    def build(provider: Any) -> None:
        source = provider.new_stream().source("source", source_of([]))
        pairs = [source.generate_epochs(f"epochs {name}", limit_out_of_orderness(0)) for name in "ab"]
        keyed = [
            [it.key_distribute(f"{name} {at}", lambda msg: msg.value[1]) for at, it in enumerate(pair)]
            for name, pair in zip("ab", pairs, strict=True)
        ]
        (left, late_left), (right, late_right) = keyed
        left.window(tumbling(5)).allow_late(late_left).cogroup("groups", right, late=late(late_left, late_right))

    with pytest.raises(GraphError, match=f"operator 'groups' {why}"):
        compiled(build)
