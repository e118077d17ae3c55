"""The end of a run, by itself, by a stop or by a signal; and its idle ticks."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from malflow import MAX, SingleThreadRuntime, StreamProvider
from malflow.runtime.coordination import coordinator
from malflow.sinks import StatelessSink, VecSink
from malflow.sources import SingleIteratorSource, StatelessSource

ENDLESS = """
import sys, time
from malflow import SingleThreadRuntime
from malflow.sinks import StatelessSink
from malflow.sources import SingleIteratorSource, StatelessSource

class Sink:
    def sink(self, msg):
        if msg.value == 3:
            print("flowing", flush=True)
    def close(self):
        print("closed", flush=True)

def hang():
    print("hanging", flush=True)
    while not runtime._slot.current.stopping:
        time.sleep(0.001)
    print("stopping", flush=True)
    time.sleep(3600)

def endless():
    number = 0
    while True:
        number += 1
        time.sleep(0.001)
        {block}
        yield number

def build_dataflow(provider):
    stream = provider.new_stream().source("endless", StatelessSource(SingleIteratorSource(endless())))
    stream.inspect_frontier("epochs", lambda epoch, ctx: print(epoch)).sink("out", StatelessSink(Sink()))

runtime = SingleThreadRuntime(build_dataflow)
runtime.execute()
print("after")
"""


class Idle:
    """A source that has nothing until it is fed, and counts how often it is asked."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.polls = 0
        self.finished = False
        self.suspended = 0

    def list_parts(self) -> list[str]:
        return ["idle"]

    def build_part(self, part: str) -> Idle:
        return self

    def poll(self) -> Any:
        self.polls += 1
        return (self.records.pop(0), 0) if self.records else None

    def is_finished(self) -> bool:
        return self.finished

    def suspend(self) -> None:
        self.suspended += 1


def start(block: str = "") -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", ENDLESS.format(block=block)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "flowing\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_a_signal_stops_at_the_end_of_the_tick(number: signal.Signals) -> None:
    process = start()
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert (output, errors, process.returncode) == ("closed\nafter\n", "", 0)


@pytest.mark.slow
def test_a_second_interrupt_does_not_wait_for_the_tick() -> None:
    process = start(block="if number > 5: hang()")
    assert process.stdout is not None
    assert process.stdout.readline() == "hanging\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "stopping\n"
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert output == "closed\n"
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode != 0


def test_signal_handlers_are_given_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    SingleThreadRuntime(lambda provider: None).execute()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_stop_ends_the_run_from_another_thread_and_no_max_flows() -> None:
    source, epochs = Idle(), []

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("idle", StatelessSource(source))  # type: ignore[arg-type]
        stream.inspect_frontier("epochs", lambda epoch, _: epochs.append(epoch))

    runtime = SingleThreadRuntime(build_dataflow)
    thread = threading.Thread(target=runtime.execute)
    thread.start()
    while not source.polls:
        time.sleep(0.001)
    runtime.stop()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert epochs == []
    assert source.suspended == 1


def test_stop_may_come_from_user_code() -> None:
    collected: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("count", StatelessSource(SingleIteratorSource(count())))
        stream.inspect("stop", lambda msg, _: runtime.stop() if msg.value == 5 else None).sink(
            "out", StatelessSink(collected)
        )

    runtime = SingleThreadRuntime(build_dataflow)
    runtime.execute()
    assert collected.values[:6] == [0, 1, 2, 3, 4, 5]


@pytest.mark.slow
def test_an_idle_dataflow_rests_and_wakes_for_new_data() -> None:
    source = Idle()
    collected: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("idle", StatelessSource(source))  # type: ignore[arg-type]
        stream.sink("out", StatelessSink(collected))

    thread = threading.Thread(target=SingleThreadRuntime(build_dataflow).execute)
    thread.start()
    time.sleep(0.6)
    polls_at_rest = source.polls
    source.records.append("news")
    while not len(collected):
        time.sleep(0.001)
    source.finished = True
    thread.join(timeout=60)
    assert collected.values == ["news"]
    assert polls_at_rest < 100


def test_records_that_come_slowly_are_not_held_back() -> None:
    shown: list[int] = []
    seen_by_source: list[int] = []

    def slow() -> Iterator[int]:
        for number in range(3):
            time.sleep(0.02)
            seen_by_source.append(len(shown))
            yield number

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("slow", StatelessSource(SingleIteratorSource(slow())))
        stream.inspect("show", lambda msg, _: shown.append(msg.value))

    SingleThreadRuntime(build_dataflow).execute()
    assert seen_by_source == [0, 1, 2]


def test_a_burst_flows_before_the_iterator_waits_again() -> None:
    shown: list[int] = []
    seen_by_source: list[int] = []

    def bursts() -> Iterator[int]:
        for number in range(100):
            if number % 50 == 0:
                seen_by_source.append(len(shown))
                time.sleep(0.01)
            yield number

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("bursts", StatelessSource(SingleIteratorSource(bursts())))
        stream.inspect("show", lambda msg, _: shown.append(msg.value))

    SingleThreadRuntime(build_dataflow).execute()
    assert seen_by_source == [0, 50]
    assert shown == list(range(100))


def test_an_iterator_that_keeps_coming_is_taken_in_batches() -> None:
    sizes: list[int] = []

    class Sizes:
        def sink(self, msg: Any) -> None:
            raise AssertionError

        def sink_batch(self, keys: Any, values: Any, timestamps: Any) -> None:
            sizes.append(len(values))

    def build_dataflow(provider: StreamProvider) -> None:
        source = SingleIteratorSource(number for number in range(50_000))
        provider.new_stream().source("s", source).sink("sizes", StatelessSink(Sizes()))  # type: ignore[arg-type]

    SingleThreadRuntime(build_dataflow).execute()
    assert sum(sizes) == 50_000
    assert sizes[:10] == [1] * 10
    assert max(sizes) > 1_000


def test_slow_functions_do_not_hold_back_what_is_done() -> None:
    called: list[int] = []
    called_when_shown: list[int] = []

    def slow(value: int) -> int:
        called.append(value)
        time.sleep(0.06)
        return value

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("s", SingleIteratorSource(range(5))).map("slow", slow)
        stream.inspect("show", lambda msg, _: called_when_shown.append(len(called)))

    SingleThreadRuntime(build_dataflow).execute()
    assert called_when_shown[0] == 1
    assert all(calls - shown <= 3 for shown, calls in enumerate(called_when_shown))


def test_fixed_cost_of_a_tick_does_not_shrink_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[int] = []

    class SlowToFlush(VecSink[Any, Any, Any]):
        def flush(self) -> None:
            ticks.append(len(self))

    sink = SlowToFlush()
    clock = SimpleNamespace(perf_counter=lambda: 0.2 * len(ticks) + 1e-6 * len(sink))
    monkeypatch.setattr(coordinator, "time", clock)
    SingleThreadRuntime(
        lambda provider: provider.new_stream().source("s", SingleIteratorSource(range(30_000))).sink("out", sink)
    ).execute()
    assert sink.values == list(range(30_000))
    assert len(ticks) < 60


def test_a_stop_during_building_counts() -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        provider.new_stream().source("endless", SingleIteratorSource(count()))
        runtime.stop()

    runtime = SingleThreadRuntime(build_dataflow)
    runtime.execute()


def test_ended_source_holds_no_union_back_until_all_have_ended() -> None:
    class Patient(Idle):
        def is_finished(self) -> bool:
            return self.finished or self.polls > 1000

    source, log = Patient(), []

    def note(epoch: Any, _: Any) -> None:
        log.append(epoch)
        source.finished = epoch == 1 or epoch is MAX

    def build_dataflow(provider: StreamProvider) -> None:
        idle = provider.new_stream().source("idle", StatelessSource(source))  # type: ignore[arg-type]
        short = provider.new_stream().source("short", StatelessSource(SingleIteratorSource([])))
        short.inspect_frontier("end", lambda epoch, _: log.append("end"))
        on_time, _ = idle.generate_epochs("epochs", lambda msg, _: msg.value)
        on_time.union(short).inspect_frontier("joined", note)

    source.records = [0, 1]
    SingleThreadRuntime(build_dataflow).execute()
    assert log == [0, 1, "end", MAX]


def test_a_finished_part_is_not_polled_again() -> None:
    class Strict(Idle):
        def poll(self) -> Any:
            assert not self.finished
            self.finished = True
            return "only", 0

    other, collected = SingleIteratorSource(range(30_000)), VecSink[Any, Any, Any]()

    def build_dataflow(provider: StreamProvider) -> None:
        strict = provider.new_stream().source("strict", StatelessSource(Strict()))  # type: ignore[arg-type]
        provider.new_stream().source("long", StatelessSource(other))
        strict.sink("out", StatelessSink(collected))

    SingleThreadRuntime(build_dataflow).execute()
    assert collected.values == ["only"]


@pytest.mark.fault("H8")
def test_it_runs_on_a_thread_that_is_not_the_main_one() -> None:
    collected: VecSink[Any, Any, Any] = VecSink()
    runtime = SingleThreadRuntime(
        lambda p: p.new_stream().source("s", SingleIteratorSource([1])).sink("out", collected), parallelism=2
    )
    thread = threading.Thread(target=runtime.execute)
    thread.start()
    thread.join(timeout=60)
    assert collected.values == [1]
