"""Positions confirmed to the readers of a source once their snapshot is durable, and the lag of readers."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from malflow import OperatorError, StoreError, StreamProvider
from malflow.events import ConfirmationFailed, SnapshotCommitted
from malflow.sinks import VecSink
from malflow.sources import StatefulSource, StatefulSourceImpl, StatefulSourcePartition
from tests.conformance.dataflow import Started
from tests.conformance.test_events import Breaks, Heard
from tests.conformance.test_own_persistence import Shelf, ShelfSession
from tests.kit.log import Log
from tests.kit.waiting import wait_until

OFTEN = timedelta(milliseconds=20)


class Tracked(StatefulSourceImpl[str, int, int, int]):
    """Counts in each part, and logs what its readers are built from and what is confirmed to them."""

    def __init__(
        self, log: Log, parts: Sequence[str] = ("a", "b", "c"), last: int = 40, fails: bool = False, crash: int = -1
    ) -> None:
        self.log, self.parts, self.last, self.fails, self.crash = log, parts, last, fails, crash

    def list_parts(self) -> Sequence[str]:
        return self.parts

    def build_part(self, part: str, state: int | None) -> StatefulSourcePartition[int, int, int]:
        self.log.append(("built", part, state or 0))
        return _Tracked(self, part, state or 0)


class _Tracked(StatefulSourcePartition[int, int, int]):
    def __init__(self, source: Tracked, part: str, position: int) -> None:
        self.source, self.part, self.position, self.polls = source, part, position, 0

    def poll(self) -> tuple[int, int] | None:
        self.polls += 1
        if self.polls % 2 == 0 or self.is_finished():
            return None
        if self.position == self.source.crash:
            raise ValueError("the end of the world")
        self.position += 1
        return self.position, self.position

    def is_finished(self) -> bool:
        return self.position >= self.source.last

    def snapshot(self) -> int:
        return self.position

    def suspend(self) -> None:
        self.source.log.append(("suspended", self.part, self.position))

    def committed(self, position: int) -> None:
        self.source.log.append(("committed", self.part, position))
        if self.source.fails:
            raise ValueError("nobody answers")

    def lag(self) -> int | None:
        return None if self.part == "silent" else self.source.last - self.position


class Unbothered:
    """A reader without the optional methods; duck-typed."""

    def __init__(self) -> None:
        self.left = 3

    def list_parts(self) -> list[str]:
        return ["only"]

    def build_part(self, part: str, state: int | None) -> Unbothered:
        self.left = 3 if state is None else state
        return self

    def poll(self) -> tuple[int, int]:
        self.left -= 1
        return self.left, 0

    def is_finished(self) -> bool:
        return self.left == 0

    def snapshot(self) -> int:
        return self.left


class Interrupts(Breaks):
    """Breaks a folder until it is told to mend it."""

    is_on = True

    def on_event(self, event: Any, /) -> None:
        """Receive an event."""
        if self.is_on:
            super().on_event(event)
        elif self.folder.is_file():
            self.mend()


class Delayed(Shelf):
    """Keeps snapshots some time after they were captured; the second and the fourth fail.

    Args:
        log: gets the positions of parts in each snapshot, just before it is durable or fails.
    """

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def open(self, states: Any, start: Any) -> Any:
        """Return a session, and what was kept."""
        _, restored = super().open(states, start)
        return DelayedSession(self), restored


class DelayedSession(ShelfSession):
    def __init__(self, shelf: Delayed) -> None:
        super().__init__(shelf)
        self.log = shelf.log
        self.commits = 0
        self.writer = ThreadPoolExecutor(1)

    def commit(self, tick: int, parallelism: int, states: Any, deltas: Any) -> Future[int]:
        """Apply the changes, and say so later."""
        deltas = list(deltas)
        snapshot = super().commit(tick, parallelism, states, deltas).result()
        found = [(it.delta.changed.items()) for it in deltas if it.name == "numbers"]
        positions = [item for items in found for item in pickle.loads(pickle.dumps(list(items)))]
        made: Future[int] = Future()
        self.is_busy = True
        self.commits += 1
        fails = self.commits in (2, 4)

        def finish() -> None:
            time.sleep(0.05)
            self.log.extend(("failed" if fails else "durable", part, position) for part, position in positions)
            made.set_exception(StoreError("the disk is full")) if fails else made.set_result(snapshot)
            self.is_busy = False

        self.writer.submit(finish)
        return made


def reading(source: Any) -> Callable[[StreamProvider], None]:
    return lambda provider: provider.new_stream().source("numbers", StatefulSource(source)).sink("out", VecSink())


def confirmed(log: Log, part: str) -> list[int]:
    return [position for what, of, position in log if (what, of) == ("committed", part)]


def check_never_ahead(log: Log) -> None:
    """Check that no reader was built behind a position that had been confirmed before."""
    reached: dict[str, int] = {}
    for what, part, position in log:
        if what == "built":
            assert position >= reached.get(part, 0)
        elif what == "committed":
            reached[part] = max(reached.get(part, 0), position)


def test_confirmation_of_the_last_positions_at_the_end(any_parallelism: Any, store: Any, log: Log) -> None:
    any_parallelism(reading(Tracked(log)), store, OFTEN).execute()
    assert [confirmed(log, part)[-1] for part in "abc"] == [40, 40, 40]
    check_never_ahead(log)


def test_confirmation_before_readers_are_suspended(runtime: Any, store: Any, log: Log) -> None:
    with Started(runtime(reading(Tracked(log, last=10**9)), store)) as started:
        wait_until(lambda: started.run.progress.tick > 3)
    whats = [what for what, part, _ in log if part == "a"]
    assert confirmed(log, "a") == [max(position for _, part, position in log if part == "a")]
    assert whats.index("committed") < len(whats) - 1 - whats[::-1].index("suspended")


@pytest.mark.slow
def test_confirmations_while_the_run_goes_on(any_parallelism: Any, store: Any, log: Log) -> None:
    heard = Heard()
    with Started(any_parallelism(reading(Tracked(log, last=10**9)), store, OFTEN, listeners=[heard])) as started:
        wait_until(lambda: len(confirmed(log, "b")) > 3)
        started.run.rescale(2).result()
        before = len(confirmed(log, "b"))
        wait_until(lambda: len(confirmed(log, "b")) > before + 2)
    found = confirmed(log, "b")
    assert found == sorted(found)
    assert len(set(found)) <= len(heard.of(SnapshotCommitted))
    check_never_ahead(log)


@pytest.mark.fault("F16")
def test_no_confirmation_ahead_of_a_crash(any_parallelism: Any, store: Any, log: Log) -> None:
    with pytest.raises(OperatorError, match="end of the world"):
        any_parallelism(reading(Tracked(log, crash=25)), store, OFTEN).execute()
    before = {part: confirmed(log, part) for part in "abc"}
    any_parallelism(reading(Tracked(log)), store, OFTEN).execute()
    check_never_ahead(log)
    assert [confirmed(log, part)[-1] for part in "abc"] == [40, 40, 40]
    assert all(len(confirmed(log, part)) > len(before[part]) for part in "abc")


@pytest.mark.fault("F16")
def test_confirmation_of_a_restored_position(any_parallelism: Any, store: Any, log: Log, new_log: Any) -> None:
    any_parallelism(reading(Tracked(log, last=7)), store).execute()
    later = new_log()
    any_parallelism(reading(Tracked(later, last=7)), store).execute()
    assert {confirmed(later, part)[0] for part in "abc"} == {7}


def test_no_confirmation_without_snapshots(any_parallelism: Any, log: Log) -> None:
    any_parallelism(reading(Tracked(log))).execute()
    assert not confirmed(log, "a")


@pytest.mark.slow
def test_no_confirmation_of_failed_snapshots(runtime: Any, store: Any, log: Log, tmp_path: Any) -> None:
    breaks = Interrupts(tmp_path / "kept" / "default" / "d")
    job = runtime(reading(Tracked(log, last=10**9)), store, OFTEN, listeners=[breaks])
    with Started(job) as started:
        wait_until(lambda: started.run.progress.tick > 4)
        assert not confirmed(log, "a")
        breaks.is_on = False
        wait_until(lambda: confirmed(log, "a"))


@pytest.mark.fault("F16")
@pytest.mark.slow
def test_confirmed_positions_are_those_of_durable_snapshots(any_parallelism: Any, log: Log) -> None:
    job = any_parallelism(reading(Tracked(log, last=10**9)), Delayed(log), timedelta(milliseconds=1))
    with Started(job):
        wait_until(lambda: len([1 for what, part, _ in log if (what, part) == ("durable", "a")]) >= 6)
    durable: dict[str, list[int]] = {part: [] for part in "abc"}
    failed = set()
    for what, part, position in log:
        if what == "durable":
            durable[part].append(position)
        elif what == "failed":
            failed.add((part, position))
        elif what == "committed":
            assert position in durable[part]
    assert len(failed) >= 3
    assert all(len(confirmed(log, part)) >= 3 for part in "abc")
    assert all(confirmed(log, part)[-1] == max(durable[part]) for part in "abc")


@pytest.mark.fault("F16")
def test_an_error_of_a_confirmation_as_an_event(runtime: Any, store: Any, log: Log) -> None:
    heard = Heard()
    runtime(reading(Tracked(log, fails=True)), store, listeners=[heard]).execute()
    assert {event.source for event in heard.of(ConfirmationFailed)} == {"numbers"}
    texts = " ".join(str(event.error) for event in heard.of(ConfirmationFailed))
    assert all(f"operator 'numbers' failed at part '{part}': ValueError: nobody answers" in texts for part in "abc")


def test_readers_without_optional_methods(any_parallelism: Any, store: Any) -> None:
    job = any_parallelism(reading(Unbothered()), store, OFTEN)
    job.execute()


def test_lag_by_source_and_part(any_parallelism: Any) -> None:
    with Started(any_parallelism(reading(Tracked(NOWHERE, last=100)))) as started:
        wait_until(lambda: started.run.progress.lag)
        first = started.run.progress
        started.finish()
        last = started.run.progress
    assert 0 <= (first.lag["numbers"] or 0) < 300
    assert sum(lag or 0 for lag in first.lag_by_part["numbers"].values()) == first.lag["numbers"]
    assert last.lag == {"numbers": 0}


def test_unknown_lag_of_one_part(runtime: Any) -> None:
    with Started(runtime(reading(Tracked(NOWHERE, ("a", "silent"), last=10**9)))) as started:
        wait_until(lambda: started.run.progress.lag)
        progress = started.run.progress
    assert progress.lag == {"numbers": None}
    assert progress.lag_by_part["numbers"]["silent"] is None
    assert progress.lag_by_part["numbers"]["a"] > 0


def test_lag_that_is_no_number(runtime: Any) -> None:
    source = Tracked(NOWHERE)
    source.last = 3.5  # type: ignore[assignment] # on purpose
    with pytest.raises(OperatorError, match=r"part 'a': TypeError: lag\(\) must return an int"):
        runtime(reading(source)).execute()


class _Nowhere:
    """A log of nothing."""

    def append(self, item: Any) -> None:
        """Forget an item."""


NOWHERE: Any = _Nowhere()
