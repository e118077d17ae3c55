"""The hook that sees each run of a process before it begins."""

from __future__ import annotations

from typing import Any

import pytest

from malflow import GraphError, MultiProcessRuntime, SingleThreadRuntime, SnapshotError, StreamProvider
from malflow.runtime.hooks import hooked
from malflow.sources import SingleIteratorSource, StatelessSource


def numbers_into(out: list[Any]) -> Any:
    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource([1, 2]))
        numbers.inspect("out", lambda msg, _: out.append(msg.value))

    return build_dataflow


def test_runtime_that_was_called() -> None:
    out: list[Any] = []
    seen: list[Any] = []
    runtime = SingleThreadRuntime(numbers_into(out))

    def hook(called: Any, call: str) -> Any:
        seen.append((called, call))
        return called

    with hooked(hook):
        runtime.execute()
        runtime.start().await_termination(60)
    runtime.execute()
    assert seen == [(runtime, "execute"), (runtime, "start")]
    assert len(out) == 6


def test_run_that_is_left_out() -> None:
    out: list[Any] = []
    runtime = SingleThreadRuntime(numbers_into(out))
    with hooked(lambda _runtime, _call: None):
        runtime.execute()
        handle = runtime.start()
    assert out == []
    assert handle.await_termination(0)
    assert handle.has_ended
    assert handle.progress.tick == 0
    with pytest.raises(SnapshotError, match="the run has ended"):
        handle.rescale(2)
    runtime.execute()
    assert len(out) == 2


class Inspected(BaseException):
    """What a command raises once it has seen the runtime."""


def test_command_that_only_looks() -> None:
    def hook(_runtime: Any, _call: str) -> Any:
        raise Inspected

    out: list[Any] = []
    runtime = SingleThreadRuntime(numbers_into(out))
    with hooked(hook), pytest.raises(Inspected):
        runtime.execute()
    runtime.execute()
    assert len(out) == 2


@pytest.mark.parametrize("is_stopped_before", [False, True])
def test_methods_of_a_runtime_in_whose_place_another_one_runs(is_stopped_before: bool) -> None:
    stopped: list[Any] = []

    def until_stopped() -> Any:
        for number in range(100_000):
            if number > 10:
                runtime.stop()
            yield number

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatelessSource(SingleIteratorSource(until_stopped())))
        numbers.inspect("out", lambda msg, _: stopped.append(msg.value))

    runtime = MultiProcessRuntime(build_dataflow, processes=2)
    if is_stopped_before:
        runtime.stop()
    with hooked(lambda _runtime, _call: SingleThreadRuntime(build_dataflow)):
        runtime.execute()
    assert bool(stopped) is not is_stopped_before
    assert len(stopped) < 100_000
    assert runtime.progress.records.get("out", 0) == len(stopped)


def test_command_within_a_command() -> None:
    def hook(runtime: Any, _call: str) -> Any:
        return runtime

    with hooked(hook):
        with pytest.raises(GraphError, match="a process of its own"), hooked(hook):
            pass
        SingleThreadRuntime(numbers_into([])).execute()
    with hooked(hook):
        pass
