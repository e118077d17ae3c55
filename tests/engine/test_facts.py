"""Sums of counts and facts, compared with a naive model, and the ticks whose reports have facts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.engine.reports import Facts, Report, RunSums
from malflow.engine.worker_reports import FactPacing
from malflow.failures import Failures

pytestmark = pytest.mark.slow

NAMES = ("lines", "split", "out")
MILLISECOND = 1_000_000

numbers = st.integers(0, 1000)
facts = st.builds(Facts, numbers, numbers, numbers, numbers, numbers, numbers)


@st.composite
def reports(draw: st.DrawFn, workers: int) -> Report:
    """Return the report of a worker; its facts leave out idle operators."""
    return Report(
        draw(st.integers(0, workers - 1)),
        draw(st.dictionaries(st.sampled_from(NAMES), numbers)),
        facts=draw(st.dictionaries(st.sampled_from(NAMES), facts)),
        failures=draw(st.dictionaries(st.sampled_from(NAMES), st.just(Failures({"ValueError": 2}, ("bad",))))),
    )


@given(st.data(), st.lists(st.integers(1, 70), min_size=1, max_size=4))
def test_sums_of_runs_that_are_rescaled(data: Any, parallelisms: list[int]) -> None:
    sums, busy, taken, errors = RunSums(), Counter[str](), Counter[str](), Counter[str]()
    batches, polls = Counter[str](), Counter[str]()
    latest: list[Report] = []
    for workers in parallelisms:
        sums.place(workers)
        latest = data.draw(st.lists(reports(workers), max_size=6))
        for report in latest:
            sums.add([report])
            taken.update(report.counts)
            for name, it in report.facts.items():
                busy[name] += it.busy
                batches[name] += it.batches
                polls[name] += it.polls
            errors.update(dict.fromkeys(report.failures, 2))
    assert +Counter(sums.counts) == +taken
    for name in NAMES:
        found = sums.of(name)
        assert found.busy == pytest.approx(busy[name] * 1e-9)
        assert (found.batches, found.polls) == (batches[name], polls[name])
        assert sums.errors.get(name, {}) == ({"ValueError": errors[name]} if errors[name] else {})
        each = [sum(it.counts.get(name, 0) for it in latest if it.worker == at) for at in range(parallelisms[-1])]
        assert [*found.taken_by_worker] == (each if len(each) > 1 else [taken[name]])
        told = {it.worker: it.facts[name] for it in latest if name in it.facts and it.facts[name].batches}
        assert found.largest == max((it.largest for it in told.values()), default=0)


@given(st.lists(st.integers(0, 200), min_size=1, max_size=100))
def test_facts_are_told_each_sixteen_ticks_or_fifty_milliseconds(steps: list[int]) -> None:
    pacing, now, told, waiting = FactPacing(), 1_000 * MILLISECOND, 0, 16
    for step in steps:
        now += step * MILLISECOND
        waiting += 1
        due = waiting >= 16 or now - told >= 50 * MILLISECOND
        assert pacing.is_due(now) == due
        if due:
            told, waiting = now, 0
