"""Transactional sinks under generated schedules of failures, stops, rescales and restarts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import OperatorError, SingleThreadRuntime, StreamProvider
from malflow.errors import SnapshotError, StoreError
from malflow.snapshot import FsspecBackend
from malflow.snapshot.protocol.manifest import DATA
from malflow.store.remote import FsspecStore
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import in_memory
from tests.kit.ledger import LedgerSink, rows_of, transactions_of

pytestmark = pytest.mark.slow

CALLS = ["fence", "prepare", "commit", "commit one", "after commit", "abort"]


@dataclass(frozen=True)
class Attempt:
    """A run, and what happens to it.

    Attributes:
        size: how many numbers its source has more than that of the run before.
        workers: its parallelism.
        interval: the ticks between two requests for a snapshot.
        bad: the number at which the user's function fails.
        stop: the number at which the run is stopped.
        rescale: the number at which it is rescaled.
        broken: the call of the sink that fails, and how often it passes before.
        full: the data files of snapshots that can't be written.
    """

    size: int
    workers: int
    interval: int
    bad: int | None
    stop: int | None
    rescale: int | None
    broken: tuple[str, int] | None
    full: frozenset[int]


numbers = st.none() | st.integers(0, 25)
attempts = st.builds(
    Attempt,
    size=st.integers(0, 6),
    workers=st.integers(1, 3),
    interval=st.integers(1, 4),
    bad=numbers,
    stop=numbers,
    rescale=numbers,
    broken=st.none() | st.tuples(st.sampled_from(CALLS), st.integers(0, 4)),
    full=st.frozensets(st.integers(0, 8), max_size=4),
)


@given(st.lists(attempts, max_size=6), st.booleans(), st.sampled_from(["pickle", "msgpack"]))
def test_any_schedule_shows_whole_transactions_and_each_record_once(
    schedule: list[Attempt], staged: bool, codec: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        backend, path = in_memory(codec=codec, retry_for=timedelta(milliseconds=1)), Path(folder) / "db"
        total, seen = 0, dict[int, list[int]]()
        for it in schedule:
            total += it.size
            with full_disk(it.full):
                run(it, total, LedgerSink(path, staged=staged, before=breaking(it)), backend)
            transactions = transactions_of(path)
            assert list(transactions) == list(range(1, len(transactions) + 1))
            assert {transaction: transactions[transaction] for transaction in seen} == seen
            seen = transactions
        last = Attempt(0, 1, 1, None, None, None, None, frozenset())
        run(last, total, LedgerSink(path, staged=staged), backend)
        assert sorted(rows_of(path)) == list(range(total))


def run(it: Attempt, total: int, sink: LedgerSink, backend: FsspecBackend) -> None:
    """Run an attempt to its end, whatever that is."""

    def each(number: int) -> int:
        if number == it.bad:
            raise ValueError("bad number")
        if number == it.stop:
            runtime.stop()
        if number == it.rescale:
            runtime.rescale(1 + it.workers % 3)
        if number % it.interval == 0:
            runtime.snapshot()
        return number

    def build(provider: StreamProvider) -> None:
        script = [item for number in range(total) for item in (number, PAUSE)]
        stream = provider.new_stream().source("numbers", ScriptedSource({"part": script}))
        keyed = stream.map("each", each).key_distribute("rest", lambda msg: msg.value % 3)
        keyed.stateful_map("count", lambda _, value, n: (value, n + 1), int).sink("ledger", sink)

    runtime = SingleThreadRuntime(build, backend, parallelism=it.workers)
    try:
        runtime.execute()
    except OperatorError as error:
        assert "bad number" in str(error) or "the server is gone" in str(error)  # noqa: PT017
    except SnapshotError as error:
        assert "the disk is full" in str(error)  # noqa: PT017


def breaking(it: Attempt) -> Any:
    left = [it.broken[1] if it.broken else 0]

    def before(call: str) -> None:
        if it.broken and call == it.broken[0]:
            left[0] -= 1
            if left[0] < 0:
                raise ConnectionError("the server is gone")

    return before


@contextmanager
def full_disk(files: frozenset[int]) -> Iterator[None]:
    """Refuse to write some data files of snapshots."""
    write, count = FsspecStore.put_new, [0]

    def put_new(store: Any, key: str, data: bytes) -> None:
        if key.startswith(DATA):
            count[0] += 1
            if count[0] in files:
                raise StoreError("the disk is full")
        write(store, key, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FsspecStore, "put_new", put_new)
        patch.setattr("malflow.snapshot.writer._FIRST_RETRY", 0.0001)
        patch.setattr("malflow.snapshot.writer._LONGEST_RETRY", 0.0001)
        yield
