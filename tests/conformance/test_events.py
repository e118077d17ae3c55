"""The events that listeners receive of a run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import (
    GraphError,
    MultiProcessRuntime,
    OperatorError,
    RestartPolicy,
    SparkRuntime,
    StoreError,
    StreamProvider,
)
from malflow.events import (
    Event,
    Rescaled,
    RescaleRefused,
    Restarted,
    RunFinished,
    RunStarted,
    SnapshotCommitted,
    SnapshotFailed,
    TickFinished,
)
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.waiting import wait_until


class Heard:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_event(self, event: Event, /) -> None:
        """Receive an event."""
        self.events.append(event)

    def wait_for(self, wanted: Callable[[Any], Any]) -> None:
        """Wait until an event has come."""
        wait_until(lambda: any(map(wanted, [*self.events])))

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


class Asks:
    """Asks the runtime for something once, when a tick has had records."""

    def __init__(self, *calls: tuple[str, tuple[Any, ...]]) -> None:
        self.runtime: Any = None
        self.calls = list(calls)

    def on_event(self, event: Event, /) -> None:
        """Receive an event."""
        if isinstance(event, TickFinished) and event.polled:
            while self.calls:
                method, arguments = self.calls.pop(0)
                getattr(self.runtime, method)(*arguments)


class Fails:
    """Fails at the first event."""

    def __init__(self) -> None:
        self.heard = 0

    def on_event(self, event: Event, /) -> None:
        """Receive an event."""
        self.heard += 1
        raise ValueError("a broken listener")


class Breaks:
    """Puts a file in the place of a folder once the run has started, so that nothing can be written there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.aside = folder.with_name("aside")

    def on_event(self, event: Event, /) -> None:
        """Receive an event."""
        if isinstance(event, RunStarted | TickFinished) and not self.folder.is_file():
            if self.folder.exists():
                self.folder.rename(self.aside)
            self.folder.touch()

    def mend(self) -> None:
        """Put the folder back."""
        self.folder.unlink(missing_ok=True)
        if self.aside.exists():
            self.aside.rename(self.folder)


def sums(provider: StreamProvider) -> None:
    numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(100)))
    keyed = numbers.key_distribute("parity", lambda msg: msg.value % 2)
    keyed.stateful_map("sum", lambda _, value, state: (state + value, state + value), default=int).sink(
        "sums", VecSink()
    )


def slow_sums(provider: StreamProvider, *, local: bool = False) -> None:
    numbers = provider.new_stream().source("numbers", ScriptedSource([1, 2, *[PAUSE] * 3, 3, *[PAUSE] * 3, 4]))
    key = lambda msg: msg.value % 2  # noqa: E731
    keyed = numbers.key_local("parity", key) if local else numbers.key_distribute("parity", key)
    keyed.stateful_map("sum", lambda _, value, state: (state + value, state + value), default=int)


def test_ticks_and_the_end_are_reported(any_parallelism: Any) -> None:
    heard = Heard()
    any_parallelism(sums, listeners=[heard]).execute()
    ticks = heard.of(TickFinished)
    assert [tick.tick for tick in ticks] == list(range(1, len(ticks) + 1))
    assert sum(tick.polled for tick in ticks) == 100
    assert all(tick.seconds >= 0 for tick in ticks)
    (end,) = heard.of(RunFinished)
    assert heard.events[-1] is end
    assert (end.error, end.snapshot, end.restarts, end.late, end.dropped) == (None, None, 0, {}, {})
    assert end.tick == ticks[-1].tick
    assert end.records["numbers"] == end.records["sum"] == end.records["sums"] == 100
    assert not heard.of(SnapshotCommitted)


def test_each_snapshot_is_reported_once(runtime: Any, store: FsspecBackend) -> None:
    heard, asks = Heard(), Asks(("snapshot", ()))
    made = asks.runtime = runtime(slow_sums, store, listeners=[heard, asks])
    made.execute()
    ids = [event.snapshot for event in heard.of(SnapshotCommitted)]
    assert len(ids) == 2, "the one that was asked for, and the last one"
    assert ids == sorted(set(ids))
    assert heard.of(RunFinished)[0].snapshot == ids[-1]
    ticks = [event.tick for event in heard.of(SnapshotCommitted)]
    assert ticks == sorted(ticks)


def test_a_rescale_is_reported(runtime: Any) -> None:
    heard, asks = Heard(), Asks(("rescale", (2,)))
    made = asks.runtime = runtime(slow_sums, listeners=[asks, heard])
    made.execute()
    (rescaled,) = heard.of(Rescaled)
    assert (rescaled.previous, rescaled.parallelism) == (1, 2)
    at = heard.events.index(rescaled)
    assert {it.parallelism for it in heard.events[:at] if isinstance(it, TickFinished)} == {1}
    assert {it.parallelism for it in heard.events[at:] if isinstance(it, TickFinished)} == {2}
    assert heard.of(RunFinished)[0].parallelism == 2


def test_a_refused_rescale_is_reported_and_logged(runtime: Any, caplog: pytest.LogCaptureFixture) -> None:
    heard, asks = Heard(), Asks(("rescale", (2,)))
    made = asks.runtime = runtime(lambda provider: slow_sums(provider, local=True), listeners=[asks, heard])
    made.execute()
    (refused,) = heard.of(RescaleRefused)
    assert refused.parallelism == 2
    assert f"the dataflow was not rescaled: {refused.error}" in caplog.messages
    assert not heard.of(Rescaled)


def test_error_that_ended_a_run_is_reported(runtime: Any) -> None:
    heard = Heard()

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("numbers", SingleIteratorSource([1, 0])).map("invert", lambda value: 1 / value)

    with pytest.raises(OperatorError) as raised:
        runtime(build, listeners=[heard]).execute()
    (end,) = heard.of(RunFinished)
    assert end.error is raised.value
    assert heard.events[-1] is end


def test_a_listener_that_raises_is_dropped(runtime: Any, caplog: pytest.LogCaptureFixture) -> None:
    fails, heard = Fails(), Heard()
    runtime(sums, listeners=[fails, heard]).execute()
    assert fails.heard == 1
    assert heard.of(RunFinished)[0].error is None
    (record,) = [record for record in caplog.records if "receives no more events" in record.message]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


@pytest.mark.parametrize("listeners", [print, "log", [object()], [Heard]])
def test_invalid_listener_is_refused(runtime: Any, listeners: Any) -> None:
    with pytest.raises(GraphError, match="listeners needs"):
        runtime(sums, listeners=listeners)


def test_builders_take_listeners(runtime: Any) -> None:
    heard = Heard()
    builder = runtime.func.builder().listeners([heard])
    for name, value in runtime.keywords.items():
        builder = getattr(builder, name)(value)
    builder.build(sums).execute()
    assert heard.of(RunFinished)


def test_a_failed_snapshot_is_reported_and_logged(
    runtime: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard, breaks = Heard(), Breaks(tmp_path / "kept" / "default" / "d")
    store = FsspecBackend(str(tmp_path / "kept"), retry_for=timedelta(milliseconds=1))
    restarts = runtime.func in (SparkRuntime, MultiProcessRuntime)
    policy: dict[str, Any] = {"restart": RestartPolicy(1, timedelta(0))} if restarts else {}
    try:
        with pytest.raises(StoreError) as raised:
            runtime(sums, store, listeners=[breaks, heard], **policy).execute()
    finally:
        breaks.mend()
    failed = heard.of(SnapshotFailed)
    assert failed
    assert failed[-1].error is raised.value
    assert failed[-1].retry_after > 0
    assert "a snapshot of job 'default' failed and will be retried in" in caplog.text
    assert [event.restarts for event in heard.of(Restarted)] == [1] * len(policy)
    assert heard.of(RunFinished)[0].error is raised.value
