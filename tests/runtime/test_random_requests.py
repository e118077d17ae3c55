"""Random requests between ticks, on two hosts: each is answered, in order, and results do not change."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, StreamProvider
from malflow.errors import SnapshotError, StoreError
from malflow.events import Event, Rescaled, SnapshotCommitted, SnapshotFailed, TickFinished
from malflow.sinks import VecSink
from malflow.snapshot import NoPersistence
from malflow.store.local import LocalStore
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import at_once, in_memory
from tests.kit.threads_host import ThreadsRuntime

ASKED = st.sampled_from(["snapshot", 1, 2, 3])
NUMBERS = range(12)


class Asking:
    """Asks for what the plan says after each tick, and notes all events and answers in their order."""

    def __init__(self, plan: dict[int, list[Any]], stops_at: int | None) -> None:
        self.plan, self.stops_at = plan, stops_at
        self.runtime: Any = None
        self.made: list[tuple[Any, Future[Any]]] = []
        self.answered: list[int] = []
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        if not isinstance(event, TickFinished):
            return
        for what in self.plan.get(event.tick, ()):
            future = self.runtime.snapshot() if what == "snapshot" else self.runtime.rescale(what)
            future.add_done_callback(partial(self._note, len(self.made)))
            self.made.append((what, future))
        if event.tick == self.stops_at:
            self.runtime.stop()

    def _note(self, number: int, _: Any) -> None:
        self.answered.append(number)


def run(
    kind: Any, persistence: Any, asking: Asking, workers: int, interval: timedelta | None
) -> VecSink[Any, Any, Any]:
    """Add numbers up by key, and return the sums."""
    script = {f"part {at}": [item for number in NUMBERS[at::3] for item in (number, PAUSE)] for at in range(3)}
    sums: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ScriptedSource(script))
        keyed = numbers.key_distribute("key", lambda msg: msg.value % 4)
        keyed.stateful_map("sum", lambda key, value, total: ((key, total + value), total + value), default=int).sink(
            "sums", sums
        )

    asking.runtime = kind(build, persistence, interval, workers, listeners=[asking])
    asking.runtime.execute()
    return sums


def last(sums: VecSink[Any, Any, Any], before: dict[int, int]) -> dict[int, int]:
    totals = dict(before)
    for key, total in sums.values:
        totals[key] = max(total, totals.get(key, 0))
    return totals


@pytest.mark.parametrize("kind", [SingleThreadRuntime, ThreadsRuntime])
@example(plan={1: ["snapshot", 1, "snapshot"]}, stops=[1], workers=1, periodic=False)
@given(
    plan=st.dictionaries(st.integers(1, 8), st.lists(ASKED, min_size=1, max_size=4), max_size=5),
    stops=st.lists(st.integers(1, 8), max_size=2),
    workers=st.integers(1, 3),
    periodic=st.booleans(),
)
@pytest.mark.slow
def test_each_request_is_answered_in_order_and_changes_nothing(
    kind: Any, plan: dict[int, list[Any]], stops: list[int], workers: int, periodic: bool
) -> None:
    backend, totals = in_memory(), dict[int, int]()
    for stop in [*stops, None]:
        asking = Asking(plan, stop)
        totals = last(run(kind, backend, asking, workers, timedelta(microseconds=1) if periodic else None), totals)
        assert all(future.done() for _, future in asking.made)
        kept = [(at, what) for at, (what, future) in enumerate(asking.made) if not future.cancelled()]
        for kind_of in (str, int):  # a rescale may be answered while an earlier snapshot is being written
            ours = [at for at, what in kept if isinstance(what, kind_of)]
            assert [at for at in asking.answered if at in ours] == ours
        committed = [event.snapshot for event in asking.events if isinstance(event, SnapshotCommitted)]
        ids = [future.result() for what, future in asking.made if what == "snapshot"]
        assert ids == sorted(ids)
        assert set(ids) <= {*committed, *ids[:1]}, "one without changes has the id of the one that was restored"
        rescales = [event.parallelism for event in asking.events if isinstance(event, Rescaled)]
        assert rescales == [what for _, what in kept if what != "snapshot"]
    assert totals == {key: sum(number for number in NUMBERS if number % 4 == key) for key in range(4)}


@pytest.mark.parametrize("kind", [SingleThreadRuntime, ThreadsRuntime])
@given(plan=st.dictionaries(st.integers(1, 8), st.lists(ASKED, min_size=1, max_size=3), max_size=5))
@pytest.mark.slow
def test_without_a_persistence_rescales_are_answered(kind: Any, plan: dict[int, list[Any]]) -> None:
    wanted = {tick: [what for what in asked if what != "snapshot"] for tick, asked in plan.items()}
    asking = Asking(wanted, None)
    totals = last(run(kind, NoPersistence(), asking, 2, None), {})
    assert totals == {key: sum(number for number in NUMBERS if number % 4 == key) for key in range(4)}
    for _, future in asking.made:
        assert future.cancelled() or future.result() is None


@pytest.mark.parametrize("kind", [SingleThreadRuntime, ThreadsRuntime])
def test_a_failed_snapshot_fails_its_requests_and_no_others(
    kind: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = Asking({1: ["snapshot"], 2: [3], 3: ["snapshot", 1, "snapshot"]}, None)
    put_new = LocalStore.put_new

    def fails_once(store: LocalStore, key: str, data: bytes) -> None:
        if asking.made and not any(isinstance(event, SnapshotFailed) for event in asking.events):
            raise StoreError("the disk is full")
        put_new(store, key, data)

    monkeypatch.setattr(LocalStore, "put_new", fails_once)
    run(kind, at_once(tmp_path), asking, 2, None)
    (_, first), *others = asking.made
    with pytest.raises((StoreError, SnapshotError), match="the disk is full"):
        first.result()
    assert [what for what, _ in others] == [3, "snapshot", 1, "snapshot"]
    for _, future in others:
        assert not isinstance(future.exception(), (StoreError, CancelledError))
