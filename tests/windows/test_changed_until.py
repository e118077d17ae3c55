"""Programs in which closed windows are kept for longer, or shorter, than at the time of the snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, agg
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import ScriptedSource
from malflow.windows import tumbling
from tests.kit.backends import in_memory

SIZE = 10
PLAIN = "no late records"

Leg = tuple[list[tuple[int, int]], Any]
"""The keys and times of a run's new records, and its `until`."""


def run(backend: Any, records: Sequence[Any], until: Any, workers: int = 1) -> list[Any]:
    """Run a job over all its records so far; return key, start, count and timing of results, or what is too late."""
    rows: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", ScriptedSource([*records]))
        timed = stream.event_time("times", lambda msg: msg.value[1], out_of_orderness=0)
        windows = timed.key_distribute("key", lambda msg: msg.value[0]).window(tumbling(SIZE))
        if until == PLAIN:
            results = windows.aggregate("counts", agg.count())
        else:
            late = windows.allow_late(until=until).aggregate("counts", agg.count())
            late.too_late.sink("too late", rows)
            results = late.with_revisions()
        row = results.map_with_key("row", lambda key, it: (key, it.start, it.value, it.timing.name))
        row.sink("rows", rows)

    SingleThreadRuntime(build, backend, parallelism=workers, at_end="keep").execute()
    return sorted(rows.values, key=str)


def expected(legs: Sequence[Leg]) -> list[Any]:
    """Return what the runs emit, from all of their records; a window is kept while each run has kept it."""
    epoch: Any = None
    counts: dict[tuple[int, int], int] = {}
    dropped: set[int] = set()
    rows: list[Any] = []
    for records, until in legs:
        span = 0 if until == PLAIN else until
        dropped |= _over(epoch, span)
        for key, at in records:
            start = at // SIZE * SIZE
            if epoch is not None and at <= epoch and until == PLAIN:
                continue
            if epoch is not None and at <= epoch and start + SIZE - 1 <= epoch:
                if start in dropped:
                    rows.append((key, at))
                    continue
                counts[key, start] = counts.get((key, start), 0) + 1
                rows.append((key, start, counts[key, start], "LATE"))
                continue
            counts[key, start] = counts.get((key, start), 0) + 1
            before, epoch = epoch, at if epoch is None else max(at, epoch)
            for (one, first), count in counts.items():
                if (before is None or first + SIZE - 1 > before) and first + SIZE - 1 <= epoch:
                    rows.append((one, first, count, "FINAL"))
            dropped |= _over(epoch, span)
    return rows


def _over(epoch: int | None, span: int) -> set[int]:
    """Return the starts of the windows that are kept no longer."""
    return {
        start for start in range(0, (epoch or 0) + 1, SIZE) if epoch is not None and start + SIZE - 1 + span <= epoch
    }


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(("before", "after"), [(PLAIN, 100), (0, 100), (5, 100)])
def test_a_window_that_was_dropped_is_not_revised_by_what_came_later_alone(
    before: Any, after: Any, workers: int
) -> None:
    backend, records = in_memory(), [("a", 1), ("a", 2), ("a", 25)]
    assert run(backend, records, before) == [("a", 0, 2, "FINAL")]
    assert run(backend, [*records, ("a", 3), ("a", 35)], after, workers) == [("a", 20, 1, "FINAL"), ("a", 3)]
    more = [*records, ("a", 3), ("a", 35), ("a", 4), ("a", 26)]
    assert run(backend, more, after) == [("a", 20, 2, "LATE"), ("a", 4)]


@pytest.mark.parametrize("after", [PLAIN, 0, 5])
def test_windows_that_are_kept_no_longer_are_not_emitted_again(after: Any) -> None:
    backend, records = in_memory(), [("a", 1), ("a", 2), ("a", 25)]
    assert run(backend, records, 100) == [("a", 0, 2, "FINAL")]
    assert run(backend, [*records, ("a", 35)], after) == [("a", 20, 1, "FINAL")]


def test_a_span_between_is_not_forgotten() -> None:
    backend, records = in_memory(), [("a", 1), ("a", 25)]
    spans = [100, 0, 100, 200]
    results = [run(backend, [*records, *[("a", 26 + at) for at in range(at)]], span) for at, span in enumerate(spans)]
    assert results == [[("a", 0, 1, "FINAL")], [], [], []]
    assert run(backend, [*records, *[("a", 26 + at) for at in range(3)], ("a", 2)], 200) == [("a", 2)]


def test_a_span_is_not_forgotten_by_a_run_in_which_no_time_passes() -> None:
    backend, records = in_memory(), [("a", 1), ("a", 12), ("a", 22)]
    assert run(backend, records, 5) == [("a", 0, 1, "FINAL"), ("a", 10, 1, "FINAL")]
    assert run(backend, records, PLAIN) == []
    assert run(backend, [*records, ("a", 2)], 100) == [("a", 2)]


def test_a_snapshot_of_a_span_that_stays_keeps_what_it_had(tmp_path: Path) -> None:
    backend, records = FsspecBackend(str(tmp_path), codec="msgpack"), [("a", 1), ("b", 25)]
    assert run(backend, records, 100) == [("a", 0, 1, "FINAL")]
    assert run(backend, [*records, ("a", 2), ("b", 3)], 100, 2) == [("a", 0, 2, "LATE"), ("b", 0, 1, "LATE")]


@given(
    legs=st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=12),
            st.sampled_from([PLAIN, 0, 3, 12, 40]),
        ),
        min_size=1,
        max_size=4,
    )
)
@pytest.mark.slow
def test_windows_are_kept_that_every_run_has_kept(legs: list[Leg]) -> None:
    backend, records, found = in_memory(), [], []
    for more, until in legs:
        records += more
        found += run(backend, records, until)
    assert sorted(map(str, found)) == sorted(map(str, expected(legs)))
