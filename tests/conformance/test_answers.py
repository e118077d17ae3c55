"""A request is answered once its effect is visible: in the progress, events, sinks and the next tick.

The callback of a future runs on the thread that gives the answer, before anything else happens there: what it sees is
what a program may see, on a machine of any speed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from malflow import StreamProvider
from malflow.events import Rescaled, SnapshotCommitted, TickFinished
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend
from malflow.testing import PAUSE, ScriptedSource
from tests.conformance.dataflow import SECONDS, Started, counting
from tests.conformance.test_events import Heard
from tests.kit.growing_file import GrowingFile
from tests.kit.ledger import LedgerSink, rows_of


@pytest.fixture
def lines(tmp_path: Path) -> GrowingFile:
    """Make an input that grows while it is read."""
    return GrowingFile(tmp_path / "lines")


@pytest.mark.parametrize("keeps", [True, False], ids=["with_persistence", "without_persistence"])
def test_a_rescale_is_answered_when_all_agree_on_it(
    runtime: Any, store: FsspecBackend, lines: GrowingFile, keeps: bool
) -> None:
    heard, seen = Heard(), list[Any]()

    def answered(_: Any) -> None:
        heard.events.append("answered")
        seen.append((started.run.progress.parallelism, heard.of(Rescaled)[-1].parallelism))

    places = [store] if keeps else []
    with Started(runtime(counting(lines), *places, listeners=[heard])) as started:
        for workers in (3, 2):
            lines.write("a", "b")
            future = started.run.rescale(workers)
            future.add_done_callback(answered)
            future.result(SECONDS)
        lines.write("end")
        started.finish()
    assert seen == [(3, 3), (2, 2)]
    workers = 1
    for event in heard.events:
        if event == "answered":
            workers = seen.pop(0)[0]
        elif isinstance(event, TickFinished):
            assert event.parallelism == workers


def test_a_snapshot_is_answered_when_all_agree_on_it(any_parallelism: Any, lines: GrowingFile, tmp_path: Path) -> None:
    heard, seen, path = Heard(), list[Any](), tmp_path / "db"

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("items", lines).sink("ledger", LedgerSink(path))

    def answered(future: Any) -> None:
        events = [event.snapshot for event in heard.of(SnapshotCommitted)]
        seen.append((future.result(), started.run.progress.snapshot, events[-1:], rows_of(path)))

    store = FsspecBackend(str(tmp_path / "state"))
    with Started(any_parallelism(build, store, listeners=[heard])) as started:
        lines.write("a")
        heard.wait_for(lambda event: isinstance(event, TickFinished) and event.polled)
        future = started.run.snapshot()
        future.add_done_callback(answered)
        made = future.result(SECONDS)
        lines.write("end")
        started.finish()
    assert seen == [(made, made, [made], ["a"])]


def test_a_snapshot_asked_for_in_the_last_tick_is_answered(runtime: Any, store: FsspecBackend) -> None:
    class Asking:
        """Asks for a snapshot in each tick."""

        def on_event(self, event: Any) -> None:
            if isinstance(event, TickFinished):
                asked.append(started.snapshot())

    asked: list[Any] = []
    source = ScriptedSource([1, PAUSE, 2])
    started: Any = runtime(counting(source), store, listeners=[Asking()], at_end="keep")
    started.execute()
    ids = [answer.result(SECONDS) for answer in asked]
    assert ids == sorted(ids)
    assert 0 < ids[-1] <= started.progress.snapshot


def test_records_are_counted_when_the_sink_has_them(any_parallelism: Any) -> None:
    class Sink(VecSink[Any, Any, Any]):
        """Compares the progress with what it has."""

        def flush(self) -> None:
            counted.append((made.progress.records.get("out", 0), len(self)))

        def sink(self, msg: Any) -> None:
            self.flush()
            super().sink(msg)

    counted: list[tuple[int, int]] = []
    made: Any = None

    def build(provider: StreamProvider) -> None:
        source = ScriptedSource([1, PAUSE, 2, 3, PAUSE, 4])
        provider.new_stream().source("numbers", source).sink("out", StatelessSink(Sink()))

    made = any_parallelism(build)
    made.execute()
    assert counted
    assert all(told <= written for told, written in counted)
    assert made.progress.records["out"] == 4


def test_the_tick_of_the_progress_is_over(any_parallelism: Any) -> None:
    seen: list[tuple[int, int]] = []

    class Listener:
        """Compares the progress with the event."""

        def on_event(self, event: Any) -> None:
            if isinstance(event, TickFinished):
                seen.append((event.tick, made.progress.tick))

    made: Any = any_parallelism(counting(ScriptedSource([1, PAUSE, 2])), listeners=[Listener()])
    made.execute()
    assert seen
    assert all(told == finished for told, finished in seen)
