"""Children that user code forks are ordinary ones: signals end them, and they write by themselves."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeAlias

import pytest

from malflow import MultiProcessRuntime, SingleThreadRuntime, StreamProvider
from malflow.cli.running.signals import signals_stop_runs
from malflow.runtime.process_state import signals_stop
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

pytestmark = pytest.mark.slow

Start: TypeAlias = Callable[[Callable[[StreamProvider], object]], SingleThreadRuntime | MultiProcessRuntime]

RUNTIMES: dict[str, Start] = {
    "one thread": SingleThreadRuntime,
    "forkserver": partial(MultiProcessRuntime, processes=1, start_method="forkserver"),
    "spawn": partial(MultiProcessRuntime, processes=1, start_method="spawn"),
}
EVERYWHERE = pytest.mark.parametrize("runtime", RUNTIMES)
STOPS = {signal.SIGTERM: -signal.SIGTERM, signal.SIGINT: 5}
"""How a child ends that gets a signal: SIGINT is a KeyboardInterrupt."""


def mapped(runtime: str, mapper: Callable[[Any], Any], size: int = 1) -> list[Any]:
    """Apply a function to numbers; return the results."""
    results: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(size)))
        numbers.map("map", mapper).sink("out", results)

    RUNTIMES[runtime](build).execute()
    return results.values


def end_of_child(number: int) -> int:
    """Fork a child that gets a signal; return how it ends."""
    child = os.fork()
    if child == 0:
        try:
            os.kill(os.getpid(), number)
            time.sleep(0.1)
        except KeyboardInterrupt:
            os._exit(5)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@EVERYWHERE
def test_signals_end_a_forked_child_as_in_any_program(runtime: str) -> None:
    assert mapped(runtime, lambda _: [end_of_child(number) for number in STOPS]) == [list(STOPS.values())]


@pytest.mark.parametrize(
    "context", [signals_stop_runs(lambda: True), signals_stop(lambda: None, lambda: False)], ids=["commands", "runs"]
)
def test_a_handler_is_that_of_before_in_a_child_alone(context: AbstractContextManager[None]) -> None:
    with context:
        present = [signal.getsignal(number) for number in STOPS]
        assert [end_of_child(number) for number in STOPS] == list(STOPS.values())
        assert [signal.getsignal(number) for number in STOPS] == present
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {*STOPS} == set()


@pytest.mark.parametrize("runtime", ["one thread", "forkserver"])
def test_a_pool_in_a_function_ends(runtime: str) -> None:
    def total(number: int) -> int:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return sum(pool.map(abs, [number, -number]))

    assert mapped(runtime, total, 3) == [0, 2, 4]


def test_text_of_a_child_does_not_mix_with_messages_of_its_worker(capsys: pytest.CaptureFixture[str]) -> None:
    def tell(number: int) -> int:
        children = []
        for name in "abc":
            child = os.fork()
            if child == 0:
                for _ in range(10):
                    print(name * 100_000, flush=True)  # to the standard output of the process
                os._exit(0)
            children.append(child)
        for _ in range(10):
            print("z" * 100_000, flush=True)
        return number + sum(os.waitpid(child, 0)[1] for child in children)

    assert mapped("forkserver", tell) == [0]
    told = capsys.readouterr().out
    assert [told.count(name * 100) for name in "abcz"] == [0, 0, 0, 10_000]
