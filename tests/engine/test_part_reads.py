"""The records and rates of parts, against lists of all that was read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.engine.parts.reads import MOST_PARTS, PartProgress, PartReads, WorkerProgress
from malflow.engine.reports import Report

PARTS = {"a": [["x"], ["y", "z"]], "b": [["x", 1], []]}
WORKER = {(name, part): at for name, them in PARTS.items() for at, parts in enumerate(them) for part in parts}

ticks = st.lists(
    st.tuples(
        st.floats(0.001, 3),
        st.dictionaries(st.sampled_from([*WORKER]), st.integers(1, 1000)),
        st.lists(st.sampled_from([*WORKER]), unique=True, max_size=1),
    ),
    max_size=30,
)


def reports_of(read: dict[tuple[str, Any], int], ended: Sequence[tuple[str, Any]]) -> list[Report]:
    """Return the reports of two workers."""
    reports = [Report(0), Report(1)]
    for worker, report in enumerate(reports):
        of_worker = {key: count for key, count in read.items() if WORKER[key] == worker}
        report.read = {name: {part: n for (of, part), n in of_worker.items() if of == name} for name, _ in of_worker}
        report.ended = {name: [part] for name, part in ended if WORKER[name, part] == worker}
    return reports


class Clock:
    """A clock that is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@given(ticks)
def test_records_and_ends_of_parts(history: list[tuple[float, dict[tuple[str, Any], int], list[Any]]]) -> None:
    clock = Clock()
    reads = PartReads(clock=clock)
    for seconds, read, ended in history:
        clock.now += seconds
        reads.note(reports_of(read, ended))
    found = reads.by_part(PARTS)
    ended_of = {key for _, _, ended in history for key in ended}
    for (name, part), worker in WORKER.items():
        it = found[name][part]
        assert it.records == sum(read.get((name, part), 0) for _, read, _ in history)
        assert (it.worker, it.is_finished) == (worker, (name, part) in ended_of)
        rates = [read.get((name, part), 0) / seconds for seconds, read, _ in history]
        assert it.rate is None or 0 <= it.rate <= max(rates) * (1 + 1e-9), "a rate is a mean of those of ticks"
    for at, by_worker in enumerate(reads.by_worker(PARTS, [0, 1])):
        live = [key for key, worker in WORKER.items() if worker == at and key not in ended_of]
        assert (by_worker.worker, by_worker.parts) == (at, len(live))
        of_parts = [it.rate or 0 for name in found for it in found[name].values() if it.worker == at]
        assert by_worker.rate is None or by_worker.rate == pytest.approx(sum(of_parts))


@given(st.floats(1, 1e6), st.integers(1, 5), st.floats(0.01, 2))
def test_a_steady_part_has_its_rate_from_the_first_second_on(rate: float, wait: int, tick: float) -> None:
    clock = Clock()
    reads = PartReads(clock=clock)
    for end in accumulate([tick] * max(2, int(wait / tick) + 2)):
        clock.now = 100 + end
        reads.note(reports_of({("a", "x"): round(rate * end) - round(rate * (end - tick))}, []))
    (found,) = [it.rate for part, it in reads.by_part(PARTS)["a"].items() if part == "x"]
    assert found is None or found == pytest.approx(rate, abs=2 / tick + rate * 0.01)


def test_a_rate_follows_a_change() -> None:
    clock = Clock()
    reads = PartReads(clock=clock)
    for second in range(60):
        clock.now += 1
        reads.note(reports_of({("a", "x"): 1000 if second < 30 else 10}, []))
    assert 50 < reads.rates("a")["x"] < 70, "a record 30 s old counts a twentieth"


def test_parts_that_have_moved_are_with_their_new_worker() -> None:
    reads = PartReads()
    reads.note(reports_of({("a", "x"): 5, ("a", "y"): 7}, [("a", "y")]))
    moved = {"a": [["y"], ["x", "z"]], "b": [[], ["x", 1]]}
    reads.place(moved)
    assert reads.by_part(moved)["a"] == {
        "y": PartProgress(0, 7, None, is_finished=True),
        "x": PartProgress(1, 5),
        "z": PartProgress(1),
    }
    assert reads.by_worker(moved, [0, 1]) == [WorkerProgress(0, 0, None), WorkerProgress(1, 4, None, lane=1)]


def test_of_very_many_parts_those_are_listed_that_are_read() -> None:
    many = [*range(50 * MOST_PARTS)]
    reads = PartReads()
    reads.note([Report(0, read={"s": {7: 1, 8: 1, 9: 1}}, ended={"s": [8]})])
    parts = {"s": [many]}
    assert [*reads.by_part(parts)["s"]] == [7, 9]
    assert reads.by_worker(parts, [0]) == [WorkerProgress(0, len(many) - 1, None)]
