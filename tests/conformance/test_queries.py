"""Questions to the states of a running job, on all runtimes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from malflow import RunHandle, StreamProvider, agg
from malflow.errors import QueryError
from malflow.snapshot import FsspecBackend
from malflow.testing import PAUSE, ScriptedSource
from malflow.windows import WindowResult, tumbling
from tests.kit.waiting import wait_until

SECONDS = 120.0
TOWNS = ["Ulm", "Bonn", "Ulm", "Jena", "Ulm", "Bonn"]


@dataclass(frozen=True)
class Town:
    """A key of the user's."""

    name: str


@dataclass
class Visits:
    """A state of the user's."""

    number: int


def visit(_town: Town, value: str, visits: Visits | None) -> tuple[str, Visits]:
    return value, Visits(1 if visits is None else visits.number + 1)


def build_dataflow(provider: StreamProvider) -> None:
    towns = provider.new_stream().source("towns", ScriptedSource([*TOWNS, *[PAUSE] * 10_000]))
    timed, _ = towns.generate_epochs("epochs", lambda msg, _: msg.timestamp - 1)
    keyed = timed.key_distribute("town", lambda msg: Town(msg.value))
    keyed.stateful_map("visits", visit)
    keyed.window(tumbling(4)).aggregate("sums", agg.count())


def started(runtime: Any, *arguments: Any) -> RunHandle:
    """Start a run, and wait until it has taken all records."""
    handle: RunHandle = runtime(build_dataflow, *arguments).start()
    wait_until(lambda: handle.progress.records.get("sums") == len(TOWNS), SECONDS)
    return handle


def test_a_running_job_answers(any_parallelism: Any, store: FsspecBackend) -> None:
    handle = started(any_parallelism, store)
    try:
        visits = handle.state("visits")
        ulm, many, items = visits.get(Town("Ulm")), visits.get_many(map(Town, TOWNS)), visits.items(limit=2)
        windows = handle.windows("sums").get(Town("Ulm"), at=4)
        lacking = visits.get(Town("Kiel"))
        assert ulm.result(SECONDS) == Visits(3)
        expected = {Town("Ulm"): Visits(3), Town("Bonn"): Visits(2), Town("Jena"): Visits(1)}
        assert many.result(SECONDS) == expected
        assert len(items.result(SECONDS)) == 2
        assert all(expected[key] == state for key, state in items.result(SECONDS))
        (window,) = windows.result(SECONDS)
        assert isinstance(window, WindowResult)
        assert (window.start, window.end, window.value) == (4, 8, 1)
        with pytest.raises(QueryError, match=r"'visits' has no state for key Town\(name='Kiel'\)"):
            lacking.result(SECONDS)
    finally:
        handle.stop()
        assert handle.await_termination(SECONDS)
    with pytest.raises(QueryError, match="the run has ended"):
        visits.get(Town("Ulm"))


@pytest.mark.slow
def test_answers_are_the_same_after_a_rescale(runtime: Any, store: FsspecBackend) -> None:
    handle = started(runtime, store)
    try:
        visits = handle.state("visits")
        before = visits.get_many(map(Town, TOWNS))
        handle.rescale(2).result(SECONDS)
        after = visits.get_many(map(Town, TOWNS))
        assert before.result(SECONDS) == after.result(SECONDS)
        assert handle.windows("sums").get(Town("Bonn"), at=5).result(SECONDS)[0].value == 1
    finally:
        handle.stop()
        assert handle.await_termination(SECONDS)
